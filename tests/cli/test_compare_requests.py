"""planner compare with requests of problems that have no profile: bigdl and drizzle."""

import json
from pathlib import Path

import pytest

from planner.cli import main
from planner.families import bigdl, drizzle
from tests.cli.test_bml import BIGDL, DRIZZLE, REQUESTS, compared, solved, without_runtime
from tests.cli.test_yan import written


def test_bigdl_is_sorted_by_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", BIGDL]) == 0
    head, rows, left_out = compared(capsys.readouterr().out)
    assert head.startswith("request: 16 nodes with 4 partitions each, 548 MiB of gradients, T_F ")
    assert {row["method"] for row in rows} == set(bigdl.METHODS) - {"auto"}
    assert not left_out
    assert (rows[0]["method"], rows[0]["above bound"], rows[0]["status"]) == (
        "rotated",
        "0.00%",
        "optimal",
    )
    assert main(["compare", BIGDL, "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert [answer["method"] for answer in answers] == [row["method"] for row in rows]
    times = [answer["objective_ns"] for answer in answers]
    assert times == sorted(times)
    for one, row in zip(answers, rows, strict=True):
        request = {**REQUESTS["bigdl"], "method": one["method"]}
        assert without_runtime(one) == solved(request, tmp_path)
        assert row["× T_F"] == f"{one['times_full_transfer']:.4g}"
        through = one["comparison"][one["method"]]["driver_bytes"]
        assert (row["through the driver"].split()[0] == "0") == (through == 0)


def test_drizzle_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", DRIZZLE]) == 0
    head, (row,), left_out = compared(capsys.readouterr().out)
    assert head == (
        "request: 320 tasks, 900 ms to compute, overhead of at most 0.02, a decision every 20 s"
    )
    assert {row["method"]} | left_out == set(drizzle.METHODS) - {"auto"}
    assert main(["compare", DRIZZLE, "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert without_runtime(answer) == solved(REQUESTS["drizzle"], tmp_path)
    assert row["group size"] == str(answer["group_size"])
    assert row["overhead"] == f"{answer['overhead']:.2%}"
    assert row["speed-up"] == f"{answer['speedup']:.4g}"
    assert row["status"] == "optimal"


def test_a_group_that_cannot_be_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free = {**REQUESTS["drizzle"]}
    del free["max_group_ns"]
    assert main(["compare", written(tmp_path, free)]) == 0
    assert "decision" not in compared(capsys.readouterr().out)[0]
    plan = tmp_path / "plan.json"
    plan.write_text("kept")
    request = {**REQUESTS["drizzle"], "max_group_ns": 10**8}
    assert main(["compare", written(tmp_path, request), "-o", str(plan)]) == 0
    out, err = capsys.readouterr()
    assert "no method found a plan" in err
    assert compared(out)[1][0]["status"] == "infeasible"
    assert "exact: " in out
    assert plan.read_text() == "kept"
