"""The checker must reject every mutation of a good plan."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.ibatch import Plan, Problem, check, solve
from planner.model.errors import InvalidPlanError
from tests import oracles
from tests.strategies import problems


@settings(max_examples=500)
@given(problems(objective="makespan"), st.data())
def test_every_mutation_is_rejected(problem: Problem, data: st.DataObject) -> None:
    result = solve(problem)
    assume(result.plan is not None)
    assert result.plan is not None
    check(problem, result.plan)
    batches = list(result.plan.batches)
    position = data.draw(st.integers(0, len(batches) - 1))
    start, stop = batches[position]
    kind = data.draw(
        st.sampled_from(["drop", "double", "grow", "shrink", "swap", "empty", "reverse"])
    )
    if kind == "drop":
        del batches[position]
    elif kind == "double":
        batches.insert(position, (start, stop))
    elif kind == "grow":  # a layer twice, or one that does not exist
        batches[position] = (start, stop + 1)
    elif kind == "shrink":  # a layer dropped, or an empty batch
        batches[position] = (start, stop - 1)
    elif kind == "swap":
        assume(len(batches) > 1)
        other = data.draw(st.integers(0, len(batches) - 2))
        batches[other], batches[other + 1] = batches[other + 1], batches[other]
    elif kind == "empty":
        batches.insert(position, (start, start))
    else:
        batches[position] = (stop, start)
    with pytest.raises(InvalidPlanError):
        check(problem, Plan(tuple(batches)))


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


@pytest.mark.parametrize(
    "batches",
    [(), ((0, 1.0),), ((False, 1),), ((0,),), ([0, 1],), ("01",)],
    ids=["none", "float", "bool", "short", "list", "text"],
)
def test_nonsense_is_no_plan(batches: tuple[tuple[int, int], ...]) -> None:
    problem = Problem(startup_ns=1, transfer_ns=[1], compute_ns=[1])
    with pytest.raises(InvalidPlanError) as caught:
        check(problem, Plan(batches))
    assert caught.value.path.startswith("batches")


def test_a_batch_reaches_exactly_as_far_as_the_cap() -> None:
    problem = Problem(
        startup_ns=1,
        transfer_ns=[1, 1, 1],
        compute_ns=[1, 1, 1],
        layer_bytes=[4, 6, 1],
        max_batch_bytes=10,
    )
    check(problem, Plan(((0, 2), (2, 3))))
    with pytest.raises(InvalidPlanError):
        check(problem, Plan(((0, 3),)))
