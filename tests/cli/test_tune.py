"""`planner why` and `planner tune` on synthetic traces: read, told, written."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from planner.cli.export import settings_for
from planner.cli.tune import to_change
from planner.formats.importers.kineto import number_bytes
from planner.formats.importers.kineto_trace import read_trace
from planner.formats.importers.kineto_units import units_in
from planner.jsonio import fsdp
from planner.jsonio.caramel import answer
from planner.solving.targets import TARGETS
from planner.traces.stacked import three_steps
from planner.traces.tuning import propose
from planner.traces.units import propose_units
from planner.view.tuned_page import TunedReport, tuned_page
from planner.view.tuned_text import tune_lines
from tests.cli.line import Line
from tests.formats.test_kineto import Event, a_step, as_before_1_12, event, written
from tests.formats.test_kineto_recorded import EXPERTS, SEVERAL, on_streams, unnamed
from tests.report.reading import read
from tests.schemas import validate
from tests.traces.made import Job
from tests.traces.made_units import both
from tests.traces.test_units import SLOW


def traced(rank: int, sent: float, lasts: float) -> list[Event]:
    """Return a synthetic step on a CPU: the gradients, 80 bytes, are all-reduced by gloo."""
    shapes = {"Input_Dims": [[20]], "Input_type": ["float"]}
    transfer = event("gloo:all_reduce", sent, lasts, "user_annotation", thread=3, **shapes)
    return [one | {"pid": rank} for one in [*a_step(), transfer]]


def write(name: str, events: list[Event], **more: Any) -> None:
    Path(name).write_bytes(written(events, **more))


def write_ranks(*spans: tuple[float, float]) -> None:
    """Write a trace for each rank, whose gradients were sent and lasted as is said."""
    for rank, span in enumerate(spans):
        about = {"rank": rank, "world_size": len(spans)}
        write(f"rank{rank}.json", traced(rank, *span), distributedInfo=about)


@pytest.fixture(autouse=True)
def _traces(line: Line) -> None:
    del line
    write_ranks((77.0, 20.0), (72.0, 25.0))


def reported(line: Line, words: str) -> Any:
    report = line(words, "--json").json
    validate(report, words.split(maxsplit=1)[0])
    return report


def test_what_was_waited_for_is_said_and_the_plan_can_be_drawn(line: Line) -> None:
    write_ranks((77.0, 2.0), (72.0, 7.0))
    text = line("why rank0.json rank1.json").out
    for part in ("2 ranks, 1 step each", "a step lasts 100 µs", "all_reduce 80 B", "saves at most"):
        assert part in text
    assert "straggler (rank 0)" in text
    report = reported(line, "why rank0.json rank1.json -o plan.json")
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1]
    waited = sum(wait["waited_ns"] for wait in report["waits"])
    assert waited == sum(rank["exposed_ns"] for rank in report["ranks"])
    assert report["saving"]["at_most_ns"] <= report["saving"]["exposed_ns"]
    assert "network" in line("draw plan.json").out


def test_what_is_missing_is_said(line: Line) -> None:
    write("trace.json", [event("aten::mm", 0, 5)])
    told = line("why trace.json")
    assert "nothing was sent" in told.err
    assert "no steps are marked" in told.err
    assert "waited for no transfer" in told.out
    assert "there is no plan" in line.error("why trace.json -o plan.json")
    write("trace.json", a_step(), distributedInfo={"rank": 0})
    assert "2 are of rank 0" in line.error("why trace.json trace.json")


def test_one_rank_of_several_is_told_to_bring_the_others(line: Line) -> None:
    told = line("why rank0.json")
    assert "one rank of 2 was given" in told.err
    assert "cannot be told apart" in told.err
    assert "start-ups, bytes, or late: one rank does not tell" in told.out
    assert "straggler" not in told.out
    assert "from one rank of 2" in line.error("why rank0.json -o plan.json")


def test_kernels_are_named_and_nothing_is_promised_while_some_are_in_doubt(line: Line) -> None:
    write("known.json", EXPERTS, **SEVERAL)
    write("doubtful.json", unnamed(EXPERTS, "acme::moe::"), **SEVERAL)
    out = line("why known.json").out
    assert "ep::internode::dispatch  DeepEP and its like" in out
    assert "saves at most" in out
    out, err = line("why doubtful.json")
    assert "the job has 64 ranks, and no kernel" in err
    assert "acme::moe::dispatch" in out
    assert "what a better plan saves is open" in out
    assert "25 µs: say with --transfers" in out
    assert "saves at most" not in out
    report = reported(line, "why doubtful.json --transfers acme::moe")
    assert report["ranks"][0]["communication_ns"] == 40_000
    assert not report["unexplained"]
    assert "not a regular expression" in line.error("why doubtful.json --transfers '('")


def test_transfers_outside_the_steps_are_named(line: Line) -> None:
    kernels = [("ncclX", 10, 20, None, 8), ("gemm", 40, 20, 5, 7), ("ncclX", 60, 9, 6, 8)]
    write("trace.json", on_streams(*kernels), **SEVERAL)
    report = reported(line, "why trace.json")
    assert any("1 of 2 transfers, 20 µs in all" in warning for warning in report["warnings"])
    assert report["parts"][0]["waited_ns"] == 9_000


def test_an_old_trace_of_gloo_shows_its_transfers(line: Line) -> None:
    """Before torch 1.12 ranges were operators."""
    write("old.json", as_before_1_12(traced(0, 77.0, 2.0)))
    assert "all_reduce 80 B" in line("why old.json").out


def test_a_step_is_predicted_and_buckets_are_planned(line: Line) -> None:
    text = line("tune rank0.json rank1.json -o plan.json --picture steps.svg").out
    assert "2 ranks; rank 0, for which the others wait, has 1 step of 100 µs" in text
    assert "as recorded: 1 bucket of 80 B" in text
    assert "keep what you have" in text
    report = reported(line, "tune rank0.json rank1.json")
    assert report["buckets"] == [80]
    assert report["keep"]
    assert report["settings"] is None
    assert sum(report["parts"].values()) == report["step_ns"] == 100_000
    plan = json.loads(Path("plan.json").read_bytes())
    assert [group["bytes"] for group in plan["groups"]] == report["proposed"]
    assert "network" in line("draw plan.json").out
    assert "recorded: computation" in Path("steps.svg").read_text()


def test_a_page_tells_the_same_and_how_it_is_made_again(line: Line) -> None:
    Path("rank0.json").rename("<b>0.json")
    text = line("tune '<b>0.json' rank1.json --transfers xyz --report 'a b.html'").out
    page = Path("a b.html").read_text()
    root = read(page)
    names = [section.attributes["id"] for section in root.all("section")]
    assert names == ["verdict", "gantt", "time", "buckets", "sure", "origin"]
    verdict, drawn, _, buckets, _, again = root.all("section")
    assert [name.text for name in buckets.one("thead").all("th")][1:] == ["recorded", "planned"]
    assert buckets.one("table").rows()[0] == ["1", "80 B", "80 B"]
    assert verdict.all("strong")[0].text.lower() == f"{text.splitlines()[-1]}."
    for step, lane in product(("recorded", "predicted", "planned"), ("computation", "network")):
        assert f"{step}: {lane}" in drawn.text
    assert not root.all("b", "script", "link", "img")
    assert "From <b>0.json, rank1.json for Distr" in root.all("header")[0].text
    (command,) = again.all("code")
    assert line(command.text.removeprefix("planner ")).out == text
    assert Path("a b.html").read_text() == page


def test_a_measured_network_decides(line: Line) -> None:
    affine = {"startup_ns": 10, "ns_per_byte": 200}
    for network, contention in (
        ({**affine, "interference": {"ns_per_byte": 0}}, False),
        ({**affine, "interference": {"ns_per_byte": 100}}, True),
        ({"startup_ns": 10, "bytes_per_s": 5e6}, False),  # by its ring
    ):
        Path("network.json").write_text(json.dumps(network))
        report = reported(line, "tune rank0.json rank1.json --network network.json")
        parts = report["parts"]
        # 16 bytes are ready at 66 µs and 64 at 69, and everything is sent from there on.
        assert report["predicted_ns"] == parts["other"] + parts["passes"] + 16_010
        assert report["contention"] == contention


JOB = Job(((10**6, 2 * 10**6, 40_000),) * 6, 1000, 40.0)
"""It sent nearly everything behind its backward pass."""


@pytest.mark.parametrize(
    ("target", "setting"),
    [
        ("ddp", "bucket_cap_mb_list=["),
        ("horovod", "its groups need the names of parameters"),
        ("deepspeed", '"reduce_bucket_size": '),
        ("megatron", '"--ddp-bucket-size",'),
    ],
)
def test_what_to_set_can_be_pasted(target: str, setting: str) -> None:
    ranks = [JOB.recorded((1, 5), rank=rank) for rank in (0, 1)]
    proposal = propose(ranks, JOB.graph, target=TARGETS[target])
    settings = settings_for(target, [answer(*proposal.planned)], JOB.graph, 4)
    text = "\n".join(tune_lines(proposal, settings, 2))
    assert "worth setting" in text
    assert setting in text
    assert ("bucket_cap_mb=" in text) == (target == "ddp")


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize("system", ["deepspeed", "ddp"])
def test_jobs_of_zero_keep_their_stage(system: str, device: bool) -> None:
    """Which a trace does not tell; a job of DDP is told one."""
    job = replace(JOB, system=system, turns=not device)
    ranks = [job.recorded((1, 5), rank=rank, device=device) for rank in (0, 1)]
    proposal = propose(ranks, job.graph, target=TARGETS["deepspeed"])
    settings = to_change(proposal, answer(*proposal.planned), job.graph, device=device)
    zero = {"reduce_bucket_size", *(["overlap_comm"] if device else [])}
    if system == "ddp":
        zero = {"stage", "contiguous_gradients", "overlap_comm", "reduce_bucket_size"}
    assert set(settings["zero_optimization"]) == zero


def test_units_are_told_and_can_be_pasted() -> None:
    ranges, ranks = both(replace(SLOW, own_bytes=8000))
    units = units_in(ranges, ranks[0])
    kept, none = (propose_units(ranks, ranks[0], units, spare_bytes=n) for n in (10**6, 0))
    settings = settings_for("fsdp2", [fsdp.answer(*kept.planned)], None, 4)
    text = "\n".join(tune_lines(kept, settings, 2))
    for part in (
        "2 steps of 46.16 ms with the same units",
        "as recorded: 6 units of 39.06 KiB, none kept after the forward pass",
        "worth setting. FSDP2, torch 2.13:",
        "    (['layers.0'",
        "fully_shard(model)",
    ):
        assert part in text, text
    assert "keep what you have" in "\n".join(tune_lines(none, None, 2))
    page = tuned_page(TunedReport(kept, settings, three_steps(kept, ranks[0]), (), (), (), "1"))
    assert "kept after the forward pass" in page
    assert "Units" in [heading.text for heading in read(page).all("h2")]


def test_elements_are_those_of_the_gradients() -> None:
    """DeepSpeed's and Megatron's sizes count them."""
    for kind, size in ((b"float", 4), (b"c10::Half", 2)):
        assert number_bytes(read_trace(written(a_step()).replace(b"c10::Half", kind))) == size


def test_what_cannot_be_planned_is_refused_with_the_reason(line: Line) -> None:
    assert "2 are of rank 0" in line.error("tune rank0.json rank0.json")
    write("alone.json", a_step())
    assert "alone.json: no transfer belongs to a step" in line.error("tune alone.json")
    write("empty.json", [event("aten::mm", 0, 5)])
    assert "no steps are marked" in line.error("tune empty.json")
    assert "one rank of 2 was given" in line("tune rank0.json").err
    assert "a name ending in .svg" in line.error("tune rank0.json --picture steps.png")
    assert "--for: this job was not sharded" in line.error("tune rank0.json --for fsdp2")
    assert "--spare: expected traces of FSDP2" in line.error("tune rank0.json --spare 1MiB")
    assert "--spare: expected" in line.error("tune rank0.json --spare much")
