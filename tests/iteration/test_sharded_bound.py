"""The bounds on sharded plans against the best plan there is, and where they are met."""

from fractions import Fraction
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.caramel.grid_bounds import ConcaveCost
from planner.families.caramel.windows import Windows
from planner.families.iteration import Problem, bound, solve
from planner.families.iteration import bounds as module
from planner.families.iteration.bounds import sharded_bound, tightened_bound
from planner.families.iteration.pushes_in_forward_bound import earliest_end, right_pushes_bound
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost, DepthCost
from planner.model.topologies import Rails
from tests.caramel.exact_oracles import best_split
from tests.caramel.test_inwards import depth_costs, lines
from tests.iteration.making import chain, on_switch
from tests.iteration.sharded_oracle import best_sharded

Cost: TypeAlias = AffineCost | DepthCost
Sides: TypeAlias = tuple[Windows, list[int], list[int], Cost]


@st.composite
def sides(draw: st.DrawFn) -> Sides:
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


@settings(max_examples=300)
@given(sides(), st.none() | depth_costs(), st.sampled_from([1, 2, 5, 16, 40]), st.integers(0, 30))
def test_no_sharded_plan_undercuts_the_bounds(
    drawn: Sides, deep: DepthCost | None, grid: int, states: int
) -> None:
    """Nor those of a search that is cut short."""
    known, pushed, pulled, cost = drawn
    cost = deep or cost
    best = best_sharded(known.heads, known.tails, pushed, pulled, cost, known.backward_ns)
    whole = sharded_bound(known, pushed, pulled, lines(cost), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STATES", states)
        assert sharded_bound(known, pushed, pulled, lines(cost), 0) <= whole <= best
    found = right_pushes_bound(known, pushed, pulled, lines(cost), 10**6, grid)
    assert found <= best
    assert right_pushes_bound(known, pushed, pulled, lines(cost), best, grid) == found


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
    ring = problem.costs["ring", 1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.families.iteration.bounds.sharded_bound", lambda *given: given[-1])
        assert bound(problem, ring, "sharded") < 0.99 * (result.lower_bound_ns or 0)


@pytest.mark.slow
@pytest.mark.parametrize(("pushed", "pulled"), [((1, 6), (1, 6)), ((1, 6), (1, 1))])
def test_what_is_pushed_between_pulls_keeps_nothing_waiting(
    pushed: tuple[int, ...], pulled: tuple[int, ...]
) -> None:
    """The last gradient is pushed, and pulled, while the first parameter is computed with."""
    known = Windows(pushed, (10, 10), (40, 0), 10, 40)
    cost = DepthCost(((1, AffineCost(1, Fraction(2))), (2, AffineCost(3, Fraction(1)))))
    best = best_sharded(known.heads, known.tails, pushed, pulled, cost, known.backward_ns)
    assert best == 10 + 3 + 3 + 40
    assert right_pushes_bound(known, pushed, pulled, lines(cost), 10**6) == best


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 4)), min_size=1, max_size=3),
    depth_costs(),
)
def test_one_side_ends_no_later_than_whole_bytes_do(
    gradients: list[tuple[int, int]], cost: DepthCost
) -> None:
    gradients.sort()
    heads, sizes = ([gradient[place] for gradient in gradients] for place in (0, 1))
    same = Windows(tuple(sizes), tuple(heads), (0,) * len(heads), 0, 0)
    costs = ConcaveCost(lines(cost), sum(sizes))
    end = earliest_end(np.array(heads, float), np.array(list(accumulate(sizes)), float), costs)
    best = best_split(same, cost)
    assert end <= best + 1e-6
    assert best < end + (len(heads) + 2) * 16  # bytes, of at most 12 ns, and times are whole


def recurrent() -> Problem:
    """Few layers with many bytes each, on rails: every transfer is long, and depths differ."""
    sizes = (132, 67, 50, 34, 34, 132, 42, 50, 50, 50, 132)  # MB
    ahead = [5, 107, 66, 51, 50, 1, 93, 64, 64, 63, 112]  # µs
    behind = [139, 4, 110, 86, 84, 7, 126, 109, 110, 318, 25]
    graph = chain(
        *(
            (forward * 1000, backward * 1000, size * 10**6)
            for forward, backward, size in zip(ahead, behind, sizes, strict=True)
        )
    )
    nic = Nic(Fraction(50 * 10**9), 14_000, 8, message_ns=3_000)
    rails = Rails(8, 8, Fraction(450 * 10**9), 3_400)
    return Problem(graph, Cluster("c", "a test", 8, rails, nic))


def test_plans_whose_transfers_take_several_depths_are_near_their_bounds() -> None:
    """Where the quick bounds give all bytes the rate of the deepest transfer."""
    problem = recurrent()
    result = solve(problem)
    assert result.objective_ns is not None
    assert result.gap is not None
    assert result.gap < 0.01
    (way,) = (option for option in problem.options if option.algorithm == "hierarchical")
    for mode in ("replicated", "sharded"):
        quick = bound(problem, way, mode)
        assert quick < 0.95 * result.objective_ns
        strong = tightened_bound(problem, way, mode, quick, result.objective_ns)
        assert strong > 0.99 * result.objective_ns
        assert tightened_bound(problem, way, mode, strong, strong) == strong  # near: nothing to do


def test_where_transfers_cost_one_line_nothing_is_raised() -> None:
    problem = recurrent()
    ring = problem.costs["ring", 1]
    for mode in ("replicated", "sharded"):
        assert tightened_bound(problem, ring, mode, 1, 10**9) == 1
