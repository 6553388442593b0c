"""The search beside computation, of a family whose plans are words and cost what a table says."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil

import pytest

from planner.model.costs import AffineCost, DepthCost, TableCost, scaled_cost
from planner.model.errors import InvalidInputError
from planner.solving.contention import MANY, MERGING, Beside, best_beside, mean_slowdown
from planner.solving.deadline import NEVER, Deadline
from planner.solving.methods import Outcome

LASTS = {"rule": 7, "search": 9, "ab": 5, "abc": 4, "abcd": 6, "late": 8}


def family(asked: list[str], *, joins: bool = False) -> Beside[str, str]:
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

    return Beside(LASTS.__getitem__, tuple, ask, search, joined)


def test_the_best_plan_is_kept_whenever_it_was_found() -> None:
    asked: list[str] = []
    outcome = best_beside(family(asked), iter([Outcome("rule")]), 3, NEVER)
    assert outcome == Outcome("rule", timed_out=True)
    assert asked == ["None 0", "search 0", "late 3"]
    assert best_beside(family([]), iter(()), 0, NEVER).plan == "late"


def test_what_is_near_its_bound_is_left_at_that() -> None:
    asked: list[str] = []
    words = family(asked, joins=True)
    outcome = best_beside(words, iter([Outcome("rule")]), 3, NEVER, least_ns=7)
    assert outcome == Outcome("rule")
    assert best_beside(words, iter([Outcome("rule")]), 3, NEVER, least_ns=5).plan == "ab"
    assert not asked


def test_neighbours_are_merged_while_that_is_shorter() -> None:
    assert best_beside(family([], joins=True), iter([Outcome("rule")]), 0, NEVER).plan == "abc"


@pytest.mark.parametrize("count", [100, 4000, 50_000])
def test_merging_looks_at_fewer_plans_of_very_many_transfers(count: int) -> None:
    looked = 0

    def lasts(plan: range) -> int:
        nonlocal looked
        looked += len(plan)
        return len(plan) if len(plan) > count - 2 else count  # two neighbours may be merged

    family: Beside[None, range] = Beside(
        lasts,
        lambda plan: plan,
        lambda plan, charged: None,
        lambda problem: [Outcome(range(count))],
        lambda plan, place: plan[1:],
    )
    found = best_beside(family, (), 0, NEVER).plan
    assert found is not None
    assert len(found) == count - 1
    assert looked <= MERGING**2 // max(MERGING, count**2) + 5 * count


def test_what_cannot_be_counted_is_not_asked() -> None:
    asked: list[str] = []
    assert best_beside(family(asked), iter([Outcome("rule")]), 2**62, NEVER).plan == "rule"
    assert len(asked) == 2


def test_when_the_time_is_up_one_plan_is_enough() -> None:
    asked: list[str] = []
    late = Deadline(1e-9)
    outcome = best_beside(family(asked), iter([Outcome("search")]), 3, late)
    assert outcome == Outcome("search", timed_out=True)
    assert not asked
    assert best_beside(family(asked), iter(()), 3, late).plan == "search"


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
    assert best_beside(long, iter([Outcome("rule")]), 3, NEVER).plan == "rule"
    assert asked == ["None 0"]
    exact = replace(family(asked), transfers=lambda plan: range(MANY))
    assert best_beside(exact, iter([Outcome("rule")]), 3, NEVER).plan == "rule"
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
    assert best_beside(words, first(), 3, Deadline(1e-9)).plan == "rule"
    assert priced == ["rule"]
