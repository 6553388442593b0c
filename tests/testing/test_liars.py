"""Methods that lie are caught, each by the rung of the ladder that is about its lie."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome
from planner.testing import ladder
from planner.testing.ladder import check_method
from tests.recipes.halves import HALVES, Plan, Problem, evaluate, exact, greedy

five, six = (
    st.builds(Problem, st.lists(st.integers(0, 30), min_size=size, max_size=size))
    for size in (5, 6)
)
LARGE = Problem(range(1, 29))


def claims_too_much(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    found = greedy(problem, deadline)
    assert found.plan is not None
    return replace(found, lower_bound=evaluate(problem, found.plan).end_ns)


def uses_a_third_link(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    return Outcome(Plan((2,) * len(problem.transfer_ns)))


def ignores_its_deadline(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    return exact(problem, Deadline(None))


def takes_the_order_of_a_set(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Of 2^6 plans two other processes make this one's once in 4,000 times."""
    order = list({f"transfer {place}" for place in range(32)})
    links = (order.index(f"transfer {place}") % 2 for place in range(len(problem.transfer_ns)))
    return Outcome(Plan(tuple(links)))


def shortens_its_problem(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    object.__setattr__(problem, "transfer_ns", tuple(time // 2 for time in problem.transfer_ns))
    return greedy(problem, deadline)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "why", "examples"),
    [
        (uses_a_third_link, "made no plan", 1),
        (ignores_its_deadline, "did not end at its time limit", 1),
        (takes_the_order_of_a_set, "another process plans otherwise", 2),
        (shortens_its_problem, "changed its problem", 8),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_lie_is_caught(
    method: Callable[[Problem, Deadline], Outcome[Plan]],
    why: str,
    examples: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ladder, "_GRACE_S", 2.0)
    with pytest.raises(AssertionError, match=why):
        check_method(HALVES, method, six, large=LARGE, examples=examples)


@pytest.mark.slow
def test_a_bound_above_a_plan_is_caught() -> None:
    with pytest.raises(AssertionError, match="a plan of auto costs less than the lower bound"):
        check_method(HALVES, claims_too_much, five)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "large"), [("auto", LARGE), ("greedy", None)])
def test_honest_methods_pass(method: str, large: Problem | None) -> None:
    check_method(HALVES, method, five, large=large, examples=10)
