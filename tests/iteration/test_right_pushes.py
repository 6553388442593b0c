"""The bound on sharded plans for concave costs against the best plan there is."""

from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.caramel.grid_bounds import ConcaveCost
from planner.families.caramel.windows import Windows
from planner.families.iteration import Problem, bound, solve
from planner.families.iteration.bounds import raised
from planner.families.iteration.pushes_in_forward_bound import earliest_end, right_pushes_bound
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost, DepthCost
from planner.model.topologies import Rails
from tests.caramel.exact_oracles import best_split
from tests.caramel.test_inwards import depth_costs, lines
from tests.iteration.making import chain
from tests.iteration.sharded_oracle import best_sharded
from tests.iteration.test_sharded_bound import sides

Sides = tuple[Windows, list[int], list[int], AffineCost | DepthCost]


@settings(max_examples=300)
@given(sides(), st.none() | depth_costs(), st.sampled_from([1, 2, 5, 16, 40]))
def test_no_sharded_plan_undercuts_the_bound(
    drawn: Sides, deep: DepthCost | None, grid: int
) -> None:
    known, pushed, pulled, cost = drawn
    cost = deep or cost
    best = best_sharded(known.heads, known.tails, pushed, pulled, cost, known.backward_ns)
    found = right_pushes_bound(known, pushed, pulled, lines(cost), 10**6, grid)
    assert found <= best
    assert right_pushes_bound(known, pushed, pulled, lines(cost), best, grid) == found


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
        strong = raised(problem, way, mode, quick, result.objective_ns)
        assert strong > 0.99 * result.objective_ns
        assert raised(problem, way, mode, strong, strong) == strong  # near: nothing to do


def test_where_transfers_cost_one_line_nothing_is_raised() -> None:
    problem = recurrent()
    ring = problem.synchronisation("ring")
    for mode in ("replicated", "sharded"):
        assert raised(problem, ring, mode, 1, 10**9) == 1
