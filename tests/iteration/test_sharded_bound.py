"""The bound on sharded plans against the best plan there is, and where it is met."""

from fractions import Fraction
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.caramel.windows import Windows
from planner.families.iteration import Problem, bound, solve
from planner.families.iteration import bounds as module
from planner.families.iteration.bounds import sharded_bound
from planner.model.costs import AffineCost, DepthCost, Line
from tests.iteration.making import chain, on_switch
from tests.iteration.sharded_oracle import best_sharded

Cost: TypeAlias = AffineCost | DepthCost


def lines(cost: Cost) -> list[Line]:
    """The affine costs of which the least counts."""
    return [(piece.value_ns, piece.slope) for piece in cost.pieces()]


def slower(cost: Cost, factor: int) -> Cost:
    if isinstance(cost, AffineCost):
        return AffineCost(factor * cost.startup_ns, factor * cost.ns_per_byte)
    return DepthCost(tuple((k, slower(one, factor)) for k, one in cost.by_depth))  # type: ignore[misc, arg-type]


@st.composite
def sides(draw: st.DrawFn) -> tuple[Windows, list[int], list[int], Cost]:
    """Windows, nested more often than not, with bytes to push and to pull, and a cost."""
    count = draw(st.integers(1, 5))
    most = 2 if count < 4 else 1  # bytes
    moments = draw(st.sampled_from([3, 10, 30]))

    def some(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    heads, tails = some(0, 2 * moments), some(0, moments)
    if draw(st.integers(0, 2)):
        heads.sort(reverse=True)
        tails.sort(reverse=True)
    pushed = some(1, most)
    pulled = some(1, most) if draw(st.booleans()) else pushed
    rate = Fraction(draw(st.integers(0, 8)), draw(st.sampled_from([1, 1, 3])))
    affine = AffineCost(draw(st.sampled_from([1, 2, 3, 7])), rate)
    cost: Cost = affine
    if draw(st.booleans()):
        cost = DepthCost(((1, affine), (2, AffineCost(affine.startup_ns + 4, rate / 3))))
    backward = max(heads) + draw(st.sampled_from([0, 0, 1, moments]))
    known = Windows(tuple(pushed), tuple(heads), tuple(tails), backward, max(tails))
    return known, pushed, pulled, cost


@settings(max_examples=120)
@given(sides())
def test_no_sharded_plan_undercuts_the_bound(
    drawn: tuple[Windows, list[int], list[int], Cost],
) -> None:
    known, pushed, pulled, cost = drawn
    best = best_sharded(known.heads, known.tails, pushed, pulled, cost, known.backward_ns)
    assert sharded_bound(known, pushed, pulled, lines(cost), 0) <= best


@settings(max_examples=60)
@given(sides(), st.integers(0, 30))
def test_a_search_that_is_cut_short_proves_less_and_nothing_false(
    drawn: tuple[Windows, list[int], list[int], Cost], states: int
) -> None:
    known, pushed, pulled, cost = drawn
    whole = sharded_bound(known, pushed, pulled, lines(cost), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STATES", states)
        assert sharded_bound(known, pushed, pulled, lines(cost), 0) <= whole


@settings(max_examples=60)
@given(sides(), st.integers(2, 1000))
def test_slower_by_a_factor_is_longer_by_it(
    drawn: tuple[Windows, list[int], list[int], Cost], factor: int
) -> None:
    known, pushed, pulled, cost = drawn
    slow = Windows(
        known.sizes,
        tuple(factor * head for head in known.heads),
        tuple(factor * tail for tail in known.tails),
        factor * known.backward_ns,
        factor * known.forward_ns,
    )
    best = best_sharded(known.heads, known.tails, pushed, pulled, cost, known.backward_ns)
    slow_lines = lines(slower(cost, factor))
    rounding = len(pushed) + len(pulled)  # of the best plan's transfers, each up to a ns
    assert sharded_bound(slow, pushed, pulled, slow_lines, 0) <= factor * best
    assert sharded_bound(slow, pushed, pulled, slow_lines, 0) > factor * (
        sharded_bound(known, pushed, pulled, lines(cost), 0) - rounding - 1
    ) * (1 - 2.0 ** (2 - module.PRECISION))


@pytest.mark.parametrize(("startup_ns", "gap"), [(60_000, 0.017), (100_000, 0.0), (150_000, 0.0)])
def test_start_ups_of_both_directions_count(startup_ns: int, gap: float) -> None:
    """Pushes, then pulls, are the best here: passes take less time than a few start-ups.

    Windows that hold both say less.
    """
    graph = chain(*[(5_000, 10_000, 10_000)] * 40)
    problem = Problem(graph, on_switch(2, startup_ns), modes=("sharded",))
    result = solve(problem)
    assert result.objective_ns is not None
    assert result.gap is not None
    assert result.gap <= gap
    ring = problem.synchronisation("ring")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.families.iteration.bounds.sharded_bound", lambda *given: given[-1])
        assert bound(problem, ring, "sharded") < 0.99 * (result.lower_bound_ns or 0)
