"""`planner why` on synthetic traces: read, told, written."""

import json
from pathlib import Path

import pytest

from planner.cli.main import main
from tests.formats.test_kineto import Event, a_step, as_before_1_12, event, written
from tests.formats.test_kineto_recorded import EXPERTS, SEVERAL, on_streams, unnamed
from tests.schemas import validate


def traced(rank: int, sent: float, lasts: float) -> list[Event]:
    """Return a synthetic step on a CPU: the gradients, 80 bytes, are all-reduced by gloo."""
    shapes = {"Input_Dims": [[20]], "Input_type": ["float"]}
    transfer = event("gloo:all_reduce", sent, lasts, "user_annotation", thread=3, **shapes)
    return [one | {"pid": rank} for one in [*a_step(), transfer]]


@pytest.fixture
def traces(tmp_path: Path) -> list[str]:
    files = []
    for rank, (sent, lasts) in enumerate(((77.0, 2.0), (72.0, 7.0))):
        path = tmp_path / f"rank{rank}.json"
        path.write_bytes(
            written(traced(rank, sent, lasts), distributedInfo={"rank": rank, "world_size": 2})
        )
        files.append(str(path))
    return files


def test_the_page_says_what_was_waited_for(
    traces: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", *traces]) == 0
    text = capsys.readouterr().out
    for part in (
        "2 ranks, 1 step each",
        "a step lasts 100 µs",
        "all_reduce 80 B",
        "straggler (rank 0)",
        "saves at most",
    ):
        assert part in text


def test_json_is_in_the_schema_and_the_plan_can_be_drawn(
    traces: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "plan.json")
    assert main(["why", *traces, "--json", "-o", plan]) == 0
    report = json.loads(capsys.readouterr().out)
    validate(report, "why")
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1]
    waited = sum(wait["waited_ns"] for wait in report["waits"])
    assert waited == sum(rank["exposed_ns"] for rank in report["ranks"])
    assert report["saving"]["at_most_ns"] <= report["saving"]["exposed_ns"]
    assert main(["draw", plan]) == 0
    assert "network" in capsys.readouterr().out


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "inference.json"
    path.write_bytes(written([event("aten::mm", 0, 5)]))
    assert main(["why", str(path)]) == 0
    told = capsys.readouterr()
    assert "nothing was sent" in told.err
    assert "no steps are marked" in told.err
    assert "waited for no transfer" in told.out
    assert main(["why", str(path), "-o", str(tmp_path / "plan.json")]) == 2
    assert "there is no plan" in capsys.readouterr().err
    path.write_bytes(written(a_step(), distributedInfo={"rank": 0}))
    assert main(["why", str(path), str(path)]) == 2
    assert "2 are of rank 0" in capsys.readouterr().err


def test_one_rank_of_several_is_told_to_bring_the_others(
    traces: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", traces[0]]) == 0
    told = capsys.readouterr()
    assert "one rank of 2 was given" in told.err
    assert "cannot be told apart" in told.err
    assert "start-ups, bytes, or late: one rank does not tell" in told.out
    assert "straggler" not in told.out
    assert main(["why", traces[0], "-o", str(tmp_path / "plan.json")]) == 2
    assert "from one rank of 2" in capsys.readouterr().err


def test_kernels_are_named_and_nothing_is_promised_while_some_are_in_doubt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known, doubtful = tmp_path / "known.json", tmp_path / "doubtful.json"
    known.write_bytes(written(EXPERTS, **SEVERAL))
    doubtful.write_bytes(written(unnamed(EXPERTS, "acme::moe::"), **SEVERAL))
    assert main(["why", str(known)]) == 0
    told = capsys.readouterr()
    assert "ep::internode::dispatch  DeepEP and its like" in told.out
    assert "saves at most" in told.out
    assert main(["why", str(doubtful)]) == 0
    told = capsys.readouterr()
    assert "the job has 64 ranks, and no kernel" in told.err
    assert "acme::moe::dispatch" in told.out
    assert "what a better plan saves is open" in told.out
    assert "25 µs: say with --transfers" in told.out
    assert "saves at most" not in told.out
    assert main(["why", str(doubtful), "--transfers", "acme::moe", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    validate(report, "why")
    assert report["ranks"][0]["communication_ns"] == 40_000
    assert not report["unexplained"]
    with pytest.raises(SystemExit):
        main(["why", str(doubtful), "--transfers", "("])
    assert "not a regular expression" in capsys.readouterr().err


def test_transfers_outside_the_steps_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    kernels = [("ncclX", 10, 20, None, 8), ("gemm", 40, 20, 5, 7), ("ncclX", 60, 9, 6, 8)]
    path.write_bytes(written(on_streams(*kernels), **SEVERAL))
    assert main(["why", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert any("1 of 2 transfers, 20 µs in all" in warning for warning in report["warnings"])
    (part,) = report["parts"]
    assert part["waited_ns"] == sum(wait["waited_ns"] for wait in report["waits"]) == 9_000
    parts = ("compute_ns", "waited_ns", "copied_ns", "idle_ns")
    assert sum(part[name] for name in parts) == part["lasts_ns"]


def test_an_old_trace_of_gloo_shows_its_transfers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before torch 1.12 ranges were operators."""
    path = tmp_path / "old.json"
    path.write_bytes(written(as_before_1_12(traced(0, 77.0, 2.0))))
    assert main(["why", str(path)]) == 0
    assert "all_reduce 80 B" in capsys.readouterr().out
