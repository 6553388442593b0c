"""planner compare with requests of every problem."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.jsonio import PROBLEMS
from tests.cli.test_bml import BIGDL, CUT, DRIZZLE, REQUESTS, compared, solved, without_runtime
from tests.cli.test_bml_drawn import ALL
from tests.cli.test_yan import left_out, written
from tests.jsonio.test_yan import SMALL

HEADS = {
    "ibatch": "request, pull: 3 layers, 9 ns to compute",
    "caramel": "request: 1 parameter, 4 KiB of gradients, 2 ops",
    "bigdl": "request: 16 nodes with 4 partitions each, 548 MiB of gradients, T_F ",
    "drizzle": "request: 320 tasks, 900 ms to compute, overhead of at most 0.02, a decision every ",
}


@pytest.mark.parametrize("problem", HEADS)
def test_every_method_has_a_row_or_is_left_out(
    problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", written(tmp_path, ALL[problem])]) == 0
    out = capsys.readouterr().out
    head, rows, _ = compared(out)
    assert head.startswith(HEADS[problem])
    methods = set(PROBLEMS[problem].family.names()) - {"auto"}
    assert {row["method"] for row in rows} | left_out(out) == methods


@pytest.mark.parametrize("name", [name for name in ALL if name != "bml"])
def test_as_json_rows_are_what_solve_answers_by_time(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of intact BCubes rows are algorithms, which `tests/cli/test_bml.py` compares."""
    assert main(["compare", written(tmp_path, ALL[name]), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    times = [answer["objective_ns"] for answer in answers]
    assert times == sorted(times)
    for one in answers:
        request = {**ALL[name], "method": one["method"]}
        expected = solved(request, tmp_path)
        if one is not answers[0]:
            expected.pop("targets", None)  # prices under other rules: of the best plan only
        assert without_runtime(one) == expected


def test_columns_are_fields_of_the_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for path in (BIGDL, DRIZZLE):
        assert main(["compare", path]) == 0
        rows = compared(capsys.readouterr().out)[1]
        assert main(["compare", path, "--json"]) == 0
        answers = json.loads(capsys.readouterr().out)
        assert [answer["method"] for answer in answers] == [row["method"] for row in rows]
        found[path] = list(zip(answers, rows, strict=True))
    best = found[BIGDL][0][1]
    assert (best["method"], best["above bound"], best["status"]) == ("rotated", "0.00%", "optimal")
    for one, row in found[BIGDL]:
        assert row["× T_F"] == f"{one['times_full_transfer']:.4g}"
        through = one["comparison"][one["method"]]["driver_bytes"]
        assert (row["through the driver"].split()[0] == "0") == (through == 0)
    ((answer, row),) = found[DRIZZLE]
    assert row["group size"] == str(answer["group_size"])
    assert row["overhead"] == f"{answer['overhead']:.2%}"
    assert row["speed-up"] == f"{answer['speedup']:.4g}"
    assert row["status"] == "optimal"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({**SMALL, "memory_bytes": 1}, ": memory"),
        (CUT, "detour, trees: the failures cut off server [0, 1] from the other 8 that work"),
        ({**REQUESTS["drizzle"], "max_group_ns": 10**8}, "exact: "),
    ],
)
def test_infeasible_requests_say_why(
    request_: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("kept")
    path = written(tmp_path, request_)
    assert main(["compare", path, "-o", str(plan)]) == 0
    out, err = capsys.readouterr()
    assert said in out
    assert {row["status"] for row in compared(out)[1]} <= {"infeasible"}
    assert "no method found a plan" in err
    assert plan.read_text() == "kept"


def test_without_a_limit_no_decision_is_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free = {**REQUESTS["drizzle"]}
    del free["max_group_ns"]
    assert main(["compare", written(tmp_path, free)]) == 0
    assert "decision" not in compared(capsys.readouterr().out)[0]
