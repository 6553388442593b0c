"""What ``planner compare`` shows follows from what a family declares, and is said once."""

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from planner.cli import main
from planner.cli.compare_options import PROFILED
from planner.cli.compare_tables import reasons, table
from planner.jsonio.interfaces import families
from planner.solving.compare import compare
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.methods import Outcome, named
from planner.solving.result import Infeasibility, Result
from tests.cli.test_yan import written
from tests.words import Words

FAMILIES = families()

DATA = Path(__file__).parents[2] / "data"
LENET = str(DATA / "profiles/lenet5.json")
OWN_SCENARIOS = {"ibatch", "caramel", "iteration"}  # which have options of their own for it


def larger(problem: int, _: Deadline) -> Outcome[int]:
    return Outcome(problem + 1)


def largest(problem: int, _: Deadline) -> Outcome[int]:
    return Outcome(None, infeasibility=Infeasibility(f"nothing is above {problem}", ("problem",)))


class Above(Family[int, int, int]):
    """A number above another: nothing is declared but what is solved."""

    name, plan_type = "above", int
    own_methods = MappingProxyType(
        {"auto": named("larger", larger), "larger": larger, "largest": largest}
    )

    def check(self, problem: int, plan: int, deadline: Deadline) -> None:
        return

    def evaluate(self, problem: int, plan: int, deadline: Deadline) -> int:
        return plan

    def objective(self, problem: int, evaluation: int) -> int:
        return evaluation

    def bound(self, problem: int, plan: int, deadline: Deadline) -> tuple[int, bool]:
        return problem, False


def test_a_family_that_declares_nothing_shows_objective_gap_status_and_run_time() -> None:
    family = Above()
    found = compare(1000, family.names(), solve=family.solve)
    header, rows = table(family, 1000, found)
    assert header == ("method", "objective", "above bound", "status", "run time")
    assert [row[:4] for row in rows] == [
        ("larger", "1.001 µs", "0.10%", "feasible"),
        ("largest", "–", "–", "infeasible"),
    ]
    assert list(reasons(found.rows)) == ["largest: nothing is above 1000"]
    assert not family.options


def test_a_reason_is_said_once() -> None:
    why = Infeasibility("too large", ("size",))
    small = Infeasibility("too small", ("size",))
    rows: list[Result[Any, Any]] = [
        Result(name, None, None, None, 0.0, False, small if name == "d" else why) for name in "adbc"
    ]
    assert list(reasons(rows)) == ["a, b, c: too large", "d: too small"]


def test_families_with_scenarios_have_regret() -> None:
    asked = {name for name, family in FAMILIES.items() if "--regret" in _names(family)}
    assert asked == {*FAMILIES}  # those of planner's own all have
    assert "--regret" not in _names(Words({"a": 1}, {}))


def _names(family: Family[Any, Any, Any]) -> list[str]:
    return [option.name for option in family.options]


@pytest.mark.parametrize("problem", sorted(OWN_SCENARIOS))
def test_regret_is_shown_of_a_profile(problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", LENET, "--problem", problem, "--cluster", "office-4", "--regret"]
    assert main([*words, "--methods", "layer_by_layer"]) == 0
    out = capsys.readouterr().out
    assert "\nbandwidth × 0.7" in out
    assert main([*words, "--methods", "layer_by_layer", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["regret"]) == 7


def test_a_request_for_regret_is_answered_by_whole_iterations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {
        "problem": "iteration",
        "profile": json.loads((DATA / "profiles/lenet5.json").read_bytes()),
        "cluster": json.loads((DATA / "clusters/office-4.json").read_bytes()),
        "regret": True,
    }
    words = ["compare", written(tmp_path, request), "--methods", "ddp"]
    assert main(words) == 0
    assert "\nstart-ups × 2" in capsys.readouterr().out


def test_warnings_are_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = {
        "problem": "ibatch",
        "compute_ns": [5, 5],
        "layer_bytes": [10, 20],
        "network": json.loads((DATA / "clusters/h100ib-10.json").read_bytes())["network"],
        "scenarios": [{"computation": 2}],
    }
    path = written(tmp_path, request)
    assert main(["compare", path, "--methods", "exact", "--json"]) == 0
    for answer in json.loads(capsys.readouterr().out):
        assert [text for text in answer["warnings"] if "beyond the table" in text]
        assert len(answer["warnings"]) == len(set(answer["warnings"]))


@pytest.mark.parametrize("witness", ["milp", "cpsat"])
def test_slow_witnesses_run_if_they_are_asked_for(
    witness: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = {"problem": "ibatch", "startup_ns": 4, "transfer_ns": [3] * 33, "compute_ns": [2] * 33}
    path = written(tmp_path, long)
    assert main(["compare", path]) == 0
    out = capsys.readouterr().out
    assert f"left out: {witness} (33 units; --methods {witness} runs it)" in out
    assert f"\n{witness} " not in out
    assert main(["compare", path, "--methods", witness, "--time-limit", "0.5"]) == 0
    assert f"\n{witness} " in capsys.readouterr().out


def test_an_option_of_other_problems_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", LENET, "--cluster", "office-4", "--ignore-memory"]) == 2
    names = [name for name, family in PROFILED.items() if "--ignore-memory" in _names(family)]
    assert names == ["yan", "fsdp", "iteration"]
    assert f"--problem ibatch, only to {', '.join(names)}" in capsys.readouterr().err


@pytest.mark.parametrize("problem", ["drizzle", "fsdp", "iteration"])
def test_a_problem_that_needs_a_cluster_says_so_first(
    problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", LENET, "--problem", problem]) == 2
    assert "--cluster: missing" in capsys.readouterr().err
