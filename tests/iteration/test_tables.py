"""Sharded and replicated plans whose costs are tables: bounds, and plans near them.

Tables need be neither affine, concave nor monotone. Exact dynamic programs over every byte are the
oracles, of few bytes.
"""

from fractions import Fraction
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import read_cluster
from planner.families.caramel.byte_bound import byte_bound
from planner.families.caramel.grid_costs import GridCost, earliest
from planner.families.caramel.table_bound import table_bound
from planner.families.caramel.windows import Windows
from planner.families.iteration import Problem, check, evaluate
from planner.families.iteration.alternatives import alternatives
from planner.families.iteration.pushes_in_forward_bound import right_pushes_bound
from planner.families.iteration.table_batches import table_batches
from planner.families.iteration.transfers import split_where_cheaper
from planner.model.costs import AffineCost, DepthCost, TableCost, TransferCost
from planner.solving.deadline import NEVER
from tests.caramel.exact_oracles import best_split
from tests.caramel.test_bounds import few
from tests.caramel.window_strategies import windows_strategy
from tests.iteration.brute_force import best_sharded
from tests.iteration.iteration_strategies import measured
from tests.iteration.making import chain, solved


@st.composite
def tables(draw: st.DrawFn) -> TableCost:
    """Tables of times by at most nine bytes that may rise, stay and fall, but not at the end."""
    sizes = draw(st.lists(st.integers(0, 9), min_size=2, max_size=5, unique=True).map(sorted))
    times = draw(st.lists(st.integers(0, 12), min_size=len(sizes), max_size=len(sizes)))
    times[-1] = max(times[-2:])
    return TableCost(tuple(zip(sizes, times, strict=True)))


@st.composite
def costs(draw: st.DrawFn) -> TransferCost:
    """A table, a line, or the less of two tables."""
    table, other = draw(tables()), draw(tables())
    affine = AffineCost(draw(st.integers(0, 9)), Fraction(draw(st.integers(0, 8)), 3))
    second: TableCost | AffineCost = other if draw(st.booleans()) else affine
    either: tuple[TransferCost, ...] = table, affine, DepthCost(((1, table), (2, second)))
    return either[draw(st.integers(0, 2))]


grids = st.sampled_from([1, 2, 5, 16, 60])


@settings(max_examples=300)
@given(costs(), st.integers(1, 14))
def test_a_grid_knows_bounds_on_what_one_transfer_and_several_take(
    cost: TransferCost, total: int
) -> None:
    known, sizes = GridCost.of_cost(cost, total), range(1, total + 1)
    several = [0] * (total + 1)
    for size in sizes:
        several[size] = min(
            several[size - part] + cost.cost_ns(part) for part in range(1, size + 1)
        )
    margin = 1e-9
    for size in sizes:
        asked, lasts = np.array(float(size)), cost.cost_ns(size)
        assert known.of(asked) <= min(map(cost.cost_ns, range(size, total + 1))) + margin
        assert known.rate * size <= lasts + margin
        assert known.least(asked) <= several[size] + margin
        assert known.room(np.array(float(lasts))) >= size - margin
        for last in range(size, total + 1):
            ends = np.array([float(size)]), np.array([float(last)])
            most = min(cost.cost_ns(one) - known.rate * one for one in range(size, last + 1))
            assert known.overhead(*ends)[0] <= most + margin
            most = min(several[one] - known.rate * one for one in range(size, last + 1))
            assert known.closure(*ends)[0] <= most + margin


@settings(max_examples=200)
@given(costs(), st.sets(st.integers(1, 12), min_size=1, max_size=5))
def test_a_transfer_may_start_and_end_anywhere_in_its_cells(
    cost: TransferCost, some: set[int]
) -> None:
    edges = [0, *sorted(some)]
    known = GridCost.of_cost(cost, edges[-1])
    overheads = known.overheads(np.array(edges, dtype=np.float64))
    cells = [range(edge, end) for edge, end in pairwise(edges)] + [range(edges[-1], edges[-1] + 1)]
    for first, last in combinations(range(len(cells)), 2):
        for begin, end in product(cells[first], cells[last]):
            over = cost.cost_ns(end - begin) - known.rate * (end - begin)
            assert overheads[first, last] <= over + 1e-9


def test_a_few_bytes_reach_into_the_middle() -> None:
    """Two bytes follow the first one without a pause; three bytes at once take longer."""
    windows, cost = Windows((1, 1, 1), (0, 0, 0), (0, 0, 2), 0, 2), TableCost(((0, 1), (1, 3)))
    assert best_split(windows, cost) == 3 + 5
    assert table_bound(windows, GridCost.of_cost(cost, 3), 10**6, (5,)) == 3 + 5


def test_what_is_read_early_may_be_pushed_first_and_all_else_in_the_forward_pass() -> None:
    """No byte of a late tail can be pushed after pulls, but one of an early tail can."""
    windows, cost = Windows((1, 1), (0, 0), (0, 2), 0, 2), TableCost(((0, 0), (2, 2)))
    known = GridCost.of_cost(cost, 2)
    assert best_sharded(windows.heads, windows.tails, (1, 1), (1, 1), cost, 0) == 4
    assert right_pushes_bound(windows, (1, 1), (1, 1), (known, known), 10**6) == 4


@settings(max_examples=300)
@given(few | windows_strategy(3, max_bytes=4), costs(), grids, st.booleans())
def test_no_plan_that_cuts_beats_the_bound_for_tables(
    windows: Windows, cost: TransferCost, grid: int, near: bool
) -> None:
    best = best_split(windows, cost)
    high = best if near else 10**6
    known = GridCost.of_cost(cost, sum(windows.sizes))
    assert byte_bound(windows, known, grid, grid) <= best
    assert table_bound(windows, GridCost.of_cost(cost, sum(windows.sizes)), high, (grid,)) <= best


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 4)), min_size=1, max_size=4), costs())
def test_batches_of_one_side_are_the_best_and_meet_the_bound_of_cells_of_a_byte(
    gradients: list[tuple[int, int]], cost: TransferCost
) -> None:
    """Against every choice of the bytes at which a batch ends."""
    moments, sizes = zip(*gradients, strict=True)
    order = sorted(range(len(sizes)), key=lambda j: moments[j])
    ready = [moments[j] for j in order for _ in range(sizes[j])]

    def lasts(ends: tuple[int, ...]) -> int:
        now = 0
        for begin, end in zip((0, *ends), (*ends, len(ready)), strict=True):
            now = max(now, ready[end - 1]) + cost.cost_ns(end - begin)
        return now

    inner = range(1, len(ready))
    best = min(lasts(ends) for count in range(len(ready)) for ends in combinations(inner, count))
    batches = table_batches(moments, sizes, cost, 1, 10**4)
    now = 0
    for load in batches:
        now = max(now, *(moments[j] for j, _ in load)) + cost.cost_ns(sum(size for _, size in load))
    assert now == best
    sent = [
        sum(size for load in batches for j, size in load if j == at) for at in range(len(sizes))
    ]
    assert sent == list(sizes)
    known = GridCost.of_cost(cost, len(ready))
    edges = np.arange(len(ready) + 1, dtype=np.float64)
    end = earliest(np.array([0.0, *ready]), edges, known)[-1] + known.rate * len(ready)
    assert end <= best + 1e-6
    if isinstance(cost, TableCost) and cost.is_monotone:
        assert end > best - 1 - len(ready)  # each time was rounded up


@settings(max_examples=40)
@given(measured(3))
def test_cutting_where_a_table_says_so_makes_no_plan_longer(problem: Problem) -> None:
    for found in alternatives(problem, NEVER):
        if found.plan is None:
            continue
        cut = split_where_cheaper(problem, found.plan, found.synchronisation)
        check(problem, cut)
        before, after = (evaluate(problem, plan).iteration_ns for plan in (found.plan, cut))
        assert after <= before


@pytest.mark.slow
def test_few_layers_on_a_measured_network_are_near_their_bound() -> None:
    """A chain of few large layers that compute little: lines below the table are far below it."""
    layers = [(40_000, 70_000, 12_000_000 >> (count % 4)) for count in range(10)]
    problem = Problem(chain(*layers), read_cluster("h100dgx-1"), element_bytes=4)
    _, objective, least = solved(problem)
    assert objective < 1.02 * least


def test_a_transfer_is_cut_into_the_pieces_of_a_table_that_take_least() -> None:
    """40 MB as two pieces at the end of a flat part of the table."""
    cost = TableCost(((1_000_000, 100), (2_000_000, 100), (3_000_000, 500), (9_000_000, 1700)))
    batches = table_batches([0], [4_000_000], cost, 1)
    assert [sum(size for _, size in load) for load in batches] == [2_000_000, 2_000_000]
