"""What methods of several families share: Pareto fronts, merging rules, local search."""

from itertools import accumulate, islice, pairwise, product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from planner.solving.bucketing import ddp_buckets, earliest_end, mg_wfbp_groups
from planner.solving.deadline import NEVER, Deadline
from planner.solving.local_search import local_search
from planner.solving.pareto import nondominated, staircase

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


def front(items: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Those that no other one is at most as large as everywhere, each once."""

    def below(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        return one != other and all(a <= b for a, b in zip(one, other, strict=True))

    return sorted({item for item in items if not any(below(other, item) for other in items)})


@given(PAIRS)
def test_two_criteria(items: list[tuple[int, int]]) -> None:
    found = staircase(items, lambda item: item, lambda item: item[1])
    assert found == front([*items])
    assert staircase(items[::-1], lambda item: item, lambda item: item[1]) == found


def test_of_equal_items_the_first_one_stays() -> None:
    items = [("a", 1, 1), ("b", 1, 1), ("c", 0, 2)]
    found = staircase(items, lambda item: item[1], lambda item: item[2])
    assert found == [("c", 0, 2), ("a", 1, 1)]


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=12), st.integers(1, 5))
def test_more_criteria(items: list[tuple[int, ...]], most: int) -> None:
    assert nondominated(items) == front(items)
    assert nondominated(items, most) == front(items)[:most]


def test_ddp_buckets_close_once_they_reach_their_limit() -> None:
    """Exactly at the limit is enough."""
    assert ddp_buckets([4, 6, 10, 15, 24, 1], first_limit=10, limit=25) == [2, 2, 2]
    assert ddp_buckets([9, 1, 24], first_limit=10, limit=25) == [2, 1]
    assert ddp_buckets([1, 1], first_limit=10, limit=25) == [2]
    assert ddp_buckets([]) == []


@given(st.lists(st.integers(0, 50)), st.integers(1, 60), st.integers(1, 60))
def test_ddp_buckets_hold_everything_and_fill_up_before_they_close(
    sizes: list[int], first: int, limit: int
) -> None:
    buckets, left = ddp_buckets(sizes, first, limit), iter(sizes)
    assert all(buckets)
    held = [[*islice(left, members)] for members in buckets]
    assert sum(buckets) == len(sizes)
    for number, bucket in enumerate(held, start=1):
        bound = first if number == 1 else limit
        assert sum(bucket[:-1]) < bound
        assert sum(bucket) >= bound or number == len(held)


def test_mg_wfbp_merges_what_becomes_ready_within_a_startup() -> None:
    def duration(first: int, stop: int) -> int:
        return 10 + (stop - first)

    # 9 after the first could begin: merge; 10 after: do not.
    assert mg_wfbp_groups([5, 14], duration, 10) == [2]
    assert mg_wfbp_groups([5, 15], duration, 10) == [1, 1]
    # The second group can begin only when the first has left, at 16: 25 is 9 later.
    assert mg_wfbp_groups([5, 15, 25], duration, 10) == [1, 2]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=6),
    st.integers(0, 9),
)
def test_the_earliest_end_is_the_best(parts: list[tuple[int, int]], startup: int) -> None:
    parts.sort(reverse=True)
    moments, sizes = zip(*parts, strict=True)
    sent = list(accumulate(sizes))
    ends = []
    for cuts in product((False, True), repeat=len(parts) - 1):
        borders = [0, *(place for place, cut in enumerate(cuts, start=1) if cut), len(parts)]
        batches = enumerate(pairwise(borders), start=1)
        ends.append(max(n * startup + sent[stop - 1] + moments[at] for n, (at, stop) in batches))
    assert earliest_end(moments, sent, startup) == min(ends)


def found(start: int, first: list[int], budget: int = 1000, **more: Any) -> tuple[int, list[int]]:
    """Return the plan found, where plans cost what they are, and the plans that are valued.

    Neighbours of a number are those by one from it.
    """
    valued: list[int] = []

    def value(plan: int) -> int | None:
        valued.append(plan)
        return None if plan % 10 == 7 else plan

    known = {"bound": 0, "target": 0, "deadline": NEVER, "budget": lambda _: budget, **more}
    best, least = local_search(start, value, first, lambda n: iter((n + 1, n - 1)), **known)
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


def test_it_stops_in_time_and_at_plans_that_are_not_allowed() -> None:
    assert found(18, [7, 17])[0] == 18
    late = Deadline(1e-9)
    while not late.passed:
        pass
    assert found(16, [3, 2], deadline=late) == (16, [16])
