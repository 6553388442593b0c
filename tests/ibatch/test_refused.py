"""Problems that cannot mean anything are refused, and so is every plan that breaks a rule."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner import AffineCost, InvalidInputError, TableCost
from planner.families.ibatch import Plan, Problem, check, solve
from planner.model.contention import Interference
from planner.model.errors import InvalidPlanError
from planner.solving.targets import FSDP2, TARGETS
from tests import oracles
from tests.formats.refused import refused
from tests.present import present
from tests.strategies import problems

GOOD: dict[str, Any] = {"startup_ns": 1, "transfer_ns": [1, 2], "compute_ns": [3, 4]}
SIZED: dict[str, Any] = {
    "layer_bytes": [1, 2],
    "cost": AffineCost.from_bandwidth(5, 10**9),
    "compute_ns": [3, 4],
}


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({**GOOD, "compute_ns": 3}, "compute_ns", ""),
        ({**GOOD, "compute_ns": [3, "4"]}, "compute_ns[1]", ""),
        ({**GOOD, "transfer_ns": ()}, "transfer_ns", ""),
        ({**GOOD, "startup_ns": None}, "startup_ns", ""),
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
        ({**GOOD, "spread_ns": [1]}, "spread_ns", ""),
        ({**GOOD, "interference": Interference(5)}, "cost", "interference needs it"),
        ({**SIZED, "objective": "eq4", "interference": Interference(5)}, "objective", ""),
        ({**GOOD, "target": TARGETS["ddp"]}, "target", "pulls no parameters"),
        ({**GOOD, "direction": "push", "target": FSDP2}, "target", "in the units that it gathers"),
        ({**GOOD, "objective": "eq4", "target": FSDP2}, "objective", "expected makespan"),
    ],
)
def test_bad_problems(fields: dict[str, Any], path: str, message: str) -> None:
    with refused(path, message):
        Problem(**fields)


WRONG_LIMITS: tuple[Any, ...] = (0, -1, float("nan"), "1", True)
WRONG_METHODS: tuple[Any, ...] = ("fast", "", [], None, "mg_wfbp", "ddp")


@pytest.mark.parametrize(
    ("options", "path"),
    [
        *(({"time_limit": limit}, "time_limit_s") for limit in WRONG_LIMITS),
        *(({"method": name}, "method") for name in WRONG_METHODS),
    ],
)
def test_bad_time_limits_and_methods_that_are_unknown_or_only_push(
    options: dict[str, Any], path: str
) -> None:
    with refused(path, ""):
        solve(Problem(**GOOD, layer_bytes=[1, 2]), **options)


@pytest.mark.parametrize("points", [None, 5, ((0, 1, 2), (1, 2)), ((0, 1),), ("ab", "cd")])
def test_bad_tables(points: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        TableCost(points)
    assert caught.value.path.startswith("cost_table")


@settings(max_examples=500)
@given(problems(objective="makespan"), st.data())
def test_every_mutation_of_a_good_plan_is_rejected(problem: Problem, data: st.DataObject) -> None:
    plan = solve(problem).plan
    assume(plan is not None)
    batches = list(present(plan).batches)
    check(problem, Plan(tuple(batches)))
    place = data.draw(st.integers(0, len(batches) - 1))
    start, stop = batch = batches[place]
    others: list[list[tuple[int, int]]] = [
        *([], [batch, batch], [(start, start), batch], [(stop, start)]),  # dropped, twice, empty
        [(start, stop + 1)],  # a layer twice, or one that does not exist
        [(start, stop - 1)],  # a layer dropped, or an empty batch
    ]
    wrong = [[*batches[:place], *other, *batches[place + 1 :]] for other in others]
    if place:
        wrong.append([*batches[: place - 1], batch, batches[place - 1], *batches[place + 1 :]])
    for mutated in wrong:
        with pytest.raises(InvalidPlanError):
            check(problem, Plan(tuple(mutated)))


@settings(max_examples=500)
@given(problems(), st.data())
def test_moved_boundaries_are_accepted_exactly_when_all_rules_hold(
    problem: Problem, data: st.DataObject
) -> None:
    count = problem.layers
    inner = data.draw(st.sets(st.integers(1, count - 1))) if count > 1 else set()
    boundaries = (0, *sorted(inner), count)
    plan = problem.plan(boundaries)
    if boundaries in set(oracles.all_boundaries(problem)):
        check(problem, plan)
    else:
        with pytest.raises(InvalidPlanError):
            check(problem, plan)


LAST = (1, 2)
NO_PLANS = [(), (LAST,), ((0, 1),), ((0, 1.0), LAST), ((False, 1), LAST), ((0,), LAST)]


@pytest.mark.parametrize("batches", [*NO_PLANS, ([0, 1], LAST), ("01", LAST), ((0, 2),)])
def test_nonsense_is_no_plan_and_neither_is_a_batch_beyond_the_cap(batches: Any) -> None:
    problem = Problem(**GOOD, layer_bytes=[5, 5], max_batch_bytes=5)
    check(problem, Plan(((0, 1), LAST)))
    with pytest.raises(InvalidPlanError) as caught:
        check(problem, Plan(batches))
    assert caught.value.path.startswith("batches")
