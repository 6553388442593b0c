"""`planner why` on synthetic traces: read, told, written."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.line import Line
from tests.formats.test_kineto import Event, a_step, as_before_1_12, event, written
from tests.formats.test_kineto_recorded import EXPERTS, SEVERAL, on_streams, unnamed
from tests.schemas import validate


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
    write_ranks((77.0, 2.0), (72.0, 7.0))


def reported(line: Line, words: str) -> Any:
    report = line("why --json", words).json
    validate(report, "why")
    return report


def test_what_was_waited_for_is_said_and_the_plan_can_be_drawn(line: Line) -> None:
    text = line("why rank0.json rank1.json").out
    for part in (
        "2 ranks, 1 step each",
        "a step lasts 100 µs",
        "all_reduce 80 B",
        "straggler (rank 0)",
        "saves at most",
    ):
        assert part in text
    report = reported(line, "rank0.json rank1.json -o plan.json")
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
    report = reported(line, "doubtful.json --transfers acme::moe")
    assert report["ranks"][0]["communication_ns"] == 40_000
    assert not report["unexplained"]
    assert "not a regular expression" in line.error("why doubtful.json --transfers '('")


def test_transfers_outside_the_steps_are_named(line: Line) -> None:
    kernels = [("ncclX", 10, 20, None, 8), ("gemm", 40, 20, 5, 7), ("ncclX", 60, 9, 6, 8)]
    write("trace.json", on_streams(*kernels), **SEVERAL)
    report = reported(line, "trace.json")
    assert any("1 of 2 transfers, 20 µs in all" in warning for warning in report["warnings"])
    assert report["parts"][0]["waited_ns"] == 9_000


def test_an_old_trace_of_gloo_shows_its_transfers(line: Line) -> None:
    """Before torch 1.12 ranges were operators."""
    write("old.json", as_before_1_12(traced(0, 77.0, 2.0)))
    assert "all_reduce 80 B" in line("why old.json").out
