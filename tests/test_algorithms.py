"""What methods of several families share: fronts, merging rules, searches, CP-SAT, contention."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import accumulate, islice, pairwise, product
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from planner.model.costs import AffineCost, DepthCost, TableCost, scaled_cost
from planner.model.errors import InvalidInputError
from planner.solving.bucketing import ddp_buckets, earliest_end, mg_wfbp_groups
from planner.solving.contention import (
    MANY,
    MERGING,
    ContentionPlanner,
    best_under_contention,
    mean_slowdown,
)
from planner.solving.cpsat import solved
from planner.solving.deadline import NEVER, Deadline
from planner.solving.local_search import local_search
from planner.solving.methods import Outcome
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


def knapsack(least: int = 0) -> tuple[Any, list[Any]]:
    """Return a model with many solutions, of which one or few are best, and its choices."""
    model = cp_model.CpModel()
    weights = [31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97]
    chosen = [model.new_bool_var(f"x{weight}") for weight in weights]
    total = sum(weight * one for weight, one in zip(weights, chosen, strict=True))
    model.add(total <= 500)
    model.add(total >= least)
    model.maximize(sum((2 * weight + 7) * one for weight, one in zip(weights, chosen, strict=True)))
    return model, chosen


def test_the_best_solution_is_proven() -> None:
    model, chosen = knapsack()
    solver, found, proven = solved(model, NEVER)
    assert (found, proven) == (True, True)
    again, *_ = solved(model, NEVER)
    assert [solver.value(one) for one in chosen] == [again.value(one) for one in chosen]


def test_a_first_solution_is_none_that_is_proven() -> None:
    once = {"stop_after_first_solution": True, "cp_model_presolve": False, "linearization_level": 0}
    _, found, proven = solved(knapsack()[0], NEVER, **once)
    assert (found, proven) == (True, False)


@pytest.mark.parametrize(("deadline", "proven"), [(NEVER, True), (Deadline(1e-9), False)])
def test_without_a_solution_it_is_proven_that_there_is_none_if_there_was_time(
    deadline: Deadline, *, proven: bool
) -> None:
    _, found, known = solved(knapsack(least=501)[0] if proven else knapsack()[0], deadline)
    assert (found, known) == (False, proven)


LASTS = {"rule": 7, "search": 9, "ab": 5, "abc": 4, "abcd": 6, "late": 8}


def family(asked: list[str], *, joins: bool = False) -> ContentionPlanner[str, str]:
    """A family whose search answers `search`, then `late`, always the same way."""

    def ask(plan: str | None, charged: int) -> str:
        if charged > 10**9:
            raise InvalidInputError("network", "too slow")
        asked.append(f"{plan} {charged}")
        return "late" if plan == "search" else "search"

    def search(problem: str) -> Iterator[Outcome[str]]:
        yield Outcome(problem, timed_out=problem == "late")

    def joined(plan: str, place: int) -> str | None:
        if not joins or plan not in ("rule", "ab", "abc"):
            return None
        return {"rule": "ab", "ab": "abc", "abc": "abcd"}[plan] if place == 0 else None

    return ContentionPlanner(LASTS.__getitem__, tuple, ask, search, joined)


def test_the_best_plan_is_kept_whenever_it_was_found() -> None:
    asked: list[str] = []
    outcome = best_under_contention(family(asked), iter([Outcome("rule")]), 3, NEVER)
    assert outcome == Outcome("rule", timed_out=True)
    assert asked == ["None 0", "search 0", "late 3"]
    assert best_under_contention(family([]), iter(()), 0, NEVER).plan == "late"


def test_what_is_near_its_bound_is_left_at_that() -> None:
    asked: list[str] = []
    words = family(asked, joins=True)
    outcome = best_under_contention(words, iter([Outcome("rule")]), 3, NEVER, least_ns=7)
    assert outcome == Outcome("rule")
    assert best_under_contention(words, iter([Outcome("rule")]), 3, NEVER, least_ns=5).plan == "ab"
    assert not asked


def test_neighbours_are_merged_while_that_is_shorter() -> None:
    assert (
        best_under_contention(family([], joins=True), iter([Outcome("rule")]), 0, NEVER).plan
        == "abc"
    )


@pytest.mark.parametrize("count", [100, 4000, 50_000])
def test_merging_looks_at_fewer_plans_of_very_many_transfers(count: int) -> None:
    looked = 0

    def lasts(plan: range) -> int:
        nonlocal looked
        looked += len(plan)
        return len(plan) if len(plan) > count - 2 else count  # two neighbours may be merged

    family: ContentionPlanner[None, range] = ContentionPlanner(
        lasts,
        lambda plan: plan,
        lambda plan, charged: None,
        lambda problem: [Outcome(range(count))],
        lambda plan, place: plan[1:],
    )
    found = best_under_contention(family, (), 0, NEVER).plan
    assert found is not None
    assert len(found) == count - 1
    assert looked <= MERGING**2 // max(MERGING, count**2) + 5 * count


def test_what_cannot_be_counted_is_not_asked() -> None:
    asked: list[str] = []
    assert (
        best_under_contention(family(asked), iter([Outcome("rule")]), 2**62, NEVER).plan == "rule"
    )
    assert len(asked) == 2


def test_when_the_time_is_up_one_plan_is_enough() -> None:
    asked: list[str] = []
    late = Deadline(1e-9)
    outcome = best_under_contention(family(asked), iter([Outcome("search")]), 3, late)
    assert outcome == Outcome("search", timed_out=True)
    assert not asked
    assert best_under_contention(family(asked), iter(()), 3, late).plan == "search"


def test_costs_are_raised_by_a_factor_and_a_charge() -> None:
    affine, table = AffineCost(3, Fraction(1, 2)), TableCost(((0, 3), (10, 8)))
    raised = partial(scaled_cost, extra_ns=5, rounding=ceil)
    twice = partial(raised, startup=2, rate=2)
    assert twice(affine) == AffineCost(11, Fraction(1))
    assert twice(table) == TableCost(((0, 11), (10, 21)))
    both = DepthCost(((1, affine), (2, table)))
    later = DepthCost(((1, AffineCost(8, Fraction(1, 2))), (2, TableCost(((0, 8), (10, 13))))))
    assert raised(both) == later
    assert mean_slowdown(3, 2) == Fraction(3, 2)
    assert mean_slowdown(0, 0) == 1
    assert mean_slowdown(10, 3) * 3 >= 10


def test_of_very_many_transfers_one_search_has_to_do() -> None:
    asked: list[str] = []
    long = replace(family(asked), transfers=lambda plan: range(MANY + 1))
    assert best_under_contention(long, iter([Outcome("rule")]), 3, NEVER).plan == "rule"
    assert asked == ["None 0"]
    exact = replace(family(asked), transfers=lambda plan: range(MANY))
    assert best_under_contention(exact, iter([Outcome("rule")]), 3, NEVER).plan == "rule"
    assert len(asked) == 4


def test_nothing_is_made_or_priced_after_the_deadline() -> None:
    """But for the first plan: a price of thousands of transfers takes long."""
    priced: list[str] = []

    def lasts(plan: str) -> int:
        priced.append(plan)
        return LASTS[plan]

    def first() -> Iterator[Outcome[str]]:
        yield Outcome("rule")
        raise AssertionError

    words = replace(family([]), lasts=lasts)
    assert best_under_contention(words, first(), 3, Deadline(1e-9)).plan == "rule"
    assert priced == ["rule"]
