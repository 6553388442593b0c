"""The typed interface refuses what cannot mean anything, with the path of the field."""

from typing import Any

import pytest

from planner import AffineCost, InvalidInputError, TableCost
from planner.families.ibatch import IBATCH, Plan, Problem, solve
from planner.model.contention import Interference
from planner.solving.deadline import NEVER, Deadline
from planner.solving.methods import Outcome
from planner.solving.targets import FSDP2, TARGETS

GOOD: dict[str, Any] = {"startup_ns": 1, "transfer_ns": [1, 2], "compute_ns": [3, 4]}
SIZED: dict[str, Any] = {
    "layer_bytes": [1, 2],
    "cost": AffineCost.from_bandwidth(5, 10**9),
    "compute_ns": [3, 4],
}


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({**GOOD, "compute_ns": None}, "compute_ns", ""),
        ({**GOOD, "compute_ns": 3}, "compute_ns", ""),
        ({**GOOD, "compute_ns": [3, "4"]}, "compute_ns[1]", ""),
        ({**GOOD, "compute_ns": [3]}, "compute_ns", ""),
        ({**GOOD, "transfer_ns": ()}, "transfer_ns", ""),
        ({**GOOD, "startup_ns": None}, "startup_ns", ""),
        ({**GOOD, "startup_ns": True}, "startup_ns", ""),
        ({**GOOD, "transfer_ns": None}, "transfer_ns", ""),
        ({**GOOD, "direction": "up"}, "direction", ""),
        ({**GOOD, "objective": 5}, "objective", ""),
        ({**GOOD, "cost": AffineCost(1, 1)}, "startup_ns", ""),  # type: ignore[arg-type]
        ({**GOOD, "max_batch_bytes": 5}, "layer_bytes", ""),
        ({**SIZED, "cost": "cheap"}, "cost", ""),
        ({**SIZED, "layer_bytes": None}, "layer_bytes", ""),
        ({**SIZED, "max_batch_bytes": 0}, "max_batch_bytes", ""),
        ({**SIZED, "cost": TableCost(((0, 1), (1, 2**62)))}, "cost_table", ""),
        ({**SIZED, "layer_bytes": [2**62, 2**62]}, "layer_bytes", ""),
        ({**GOOD, "compute_ns": [2**62, 2**62]}, "compute_ns", ""),
        ({**GOOD, "transfer_ns": [2**62, 2**62]}, "transfer_ns", ""),
        ({**GOOD, "startup_ns": 2**62}, "startup_ns", "63 bits"),
        ({**GOOD, "spread_ns": [1]}, "spread_ns", ""),
        ({**GOOD, "interference": Interference(5)}, "cost", "interference needs it"),
        ({**SIZED, "objective": "eq4", "interference": Interference(5)}, "objective", ""),
        ({**GOOD, "target": TARGETS["ddp"]}, "target", "pulls no parameters"),
        ({**GOOD, "direction": "push", "target": FSDP2}, "target", "in the units that it gathers"),
        ({**GOOD, "objective": "eq4", "target": FSDP2}, "objective", "expected makespan"),
    ],
)
def test_bad_problems(fields: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Problem(**fields)
    assert caught.value.path == path
    assert message in caught.value.message


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "1", True])
def test_bad_time_limits(limit: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        solve(Problem(**GOOD), time_limit=limit)
    assert caught.value.path == "time_limit_s"


@pytest.mark.parametrize("method", ["fast", "", [], None, "mg_wfbp", "ddp"])
def test_methods_that_are_unknown_or_only_push(method: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        solve(Problem(**GOOD, layer_bytes=[1, 2]), method=method)
    assert caught.value.path == "method"


@pytest.mark.parametrize("points", [None, 5, ((0, 1, 2), (1, 2)), ((0, 1),), ("ab", "cd")])
def test_bad_tables(points: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        TableCost(points)
    assert caught.value.path.startswith("cost_table")


def test_lists_become_tuples() -> None:
    assert TableCost([[0, 1], [1, 2]]) == TableCost(((0, 1), (1, 2)))  # type: ignore[arg-type]
    assert Problem(**GOOD).transfer_ns == (1, 2)


@pytest.mark.parametrize("method", ["exact", "milp"])
def test_a_method_that_breaks_its_own_promise_is_a_fault_not_an_answer(method: str) -> None:
    problem = Problem(**GOOD, layer_bytes=[5, 5], max_batch_bytes=5)
    for boundaries in ((0, 2), (0, 1), (0, 2, 1)):
        outcome = Outcome(problem.plan(boundaries))

        def broken(_: Problem, __: Deadline, outcome: Outcome[Plan] = outcome) -> Outcome[Plan]:
            return outcome

        with pytest.raises(RuntimeError, match="made no plan"):
            IBATCH.run(problem, method, {method: broken}, NEVER)
