"""Local search, over numbers that are their own neighbours by one."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from planner.solving.deadline import NEVER, Deadline
from planner.solving.local_search import local_search


def neighbours(plan: int) -> Iterator[int]:
    yield from (plan + 1, plan - 1)


def found(
    start: int,
    first: list[int],
    *,
    bound: int = 0,
    target: int = 0,
    budget: int = 1000,
    deadline: Deadline = NEVER,
) -> tuple[int, list[int]]:
    """Return the plan found, where plans cost what they are, and the plans that are valued."""
    valued: list[int] = []

    def value(plan: int) -> int | None:
        valued.append(plan)
        return None if plan % 10 == 7 else plan

    best, least = local_search(
        start,
        value,
        first,
        neighbours,
        bound=bound,
        target=target,
        budget=lambda _: budget,
        deadline=deadline,
    )
    assert best == least
    return best, valued


@given(st.integers(0, 6), st.lists(st.integers(0, 50)), st.integers(0, 20))
def test_it_is_never_worse_than_its_start_and_values_nothing_twice(
    start: int, first: list[int], budget: int
) -> None:
    best, valued = found(start, first, budget=budget)
    assert best <= min((start, *(plan for plan in first if plan % 10 != 7)))
    assert len(valued) == len(set(valued)) <= 1 + len(first) + budget
    assert best == 0 or budget < 2 * start


def test_candidates_are_valued_down_to_the_bound_and_neighbours_to_the_target() -> None:
    """What is near the bound is not improved, but a better one that is there is taken."""
    assert found(16, [15, 13, 12, 11], bound=12, target=16) == (12, [16, 15, 13, 12])
    assert found(16, [15, 14], bound=12, target=15) == (14, [16, 15, 14])
    assert found(16, [15], bound=12, target=14)[0] == 14
    assert found(12, [11], bound=12, target=15) == (12, [12])


def test_a_plan_that_is_not_allowed_is_none() -> None:
    assert found(18, [7, 17])[0] == 18


def test_it_stops_in_time() -> None:
    late = Deadline(1e-9)
    while not late.passed:
        pass
    assert found(16, [3, 2], deadline=late) == (16, [16])
