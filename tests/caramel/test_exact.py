"""The constraint program against enumeration and dynamic programs."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost, InvalidInputError, NotApplicableError, TableCost
from planner.caramel.exact import (
    Grouping,
    _is_subadditive,
    _lines,
    best_grouping,
    best_op_order,
)
from planner.caramel.jackson import preemptive_bound
from planner.caramel.windows import Windows, windows
from planner.costs import DepthCost, TransferCost
from planner.deadline import Deadline
from planner.graphs import Graph
from tests.caramel.exact_oracles import (
    backward_orders,
    best_by_enumeration,
    best_by_subsets,
    best_order_value,
    best_split,
    is_complete,
    price,
)
from tests.caramel.window_strategies import nested_windows, small_graphs, windows_strategy
from tests.strategies import affine_costs, table_costs


@st.composite
def depth_costs(draw: st.DrawFn) -> DepthCost:
    by_depth = draw(st.lists(affine_costs() | table_costs(), min_size=1, max_size=3))
    return DepthCost(tuple(enumerate(by_depth, 1)))


costs = st.one_of(affine_costs(), affine_costs(), table_costs(), depth_costs())


def solved(one: Windows, cost: TransferCost, *, split: bool = False, quantum: int = 1) -> int:
    """Solve to the end, check the plan and return its value."""
    found = best_grouping(one, cost, deadline=Deadline(None), split=split, quantum=quantum)
    assert found.value is not None
    assert not found.timed_out
    assert found.lower_bound == found.value == price(one, cost, found.groups)
    assert is_complete(one, found.groups)
    left = list(one.sizes)
    for group in found.groups:
        for j, amount in group:
            assert amount == left[j] or (split and amount % quantum == 0)
            left[j] -= amount
    return found.value


@settings(max_examples=60)
@given(windows_strategy(5) | nested_windows(5), costs)
def test_as_good_as_every_plan(one: Windows, cost: TransferCost) -> None:
    best = best_by_enumeration(one, cost)
    assert best_by_subsets(one, cost) == best, "the oracles agree"
    assert solved(one, cost) == best


@settings(max_examples=40)
@given(windows_strategy(8, min_parameters=6) | nested_windows(8), costs)
def test_as_good_as_the_dynamic_program(one: Windows, cost: TransferCost) -> None:
    assert solved(one, cost) == best_by_subsets(one, cost)


@settings(max_examples=80)
@given(windows_strategy(3, max_bytes=4), costs, st.sampled_from([1, 1, 2, 3]))
def test_as_good_as_every_split_plan(one: Windows, cost: TransferCost, quantum: int) -> None:
    if not _is_subadditive(cost, sum(one.sizes)):
        with pytest.raises(NotApplicableError):
            best_grouping(one, cost, deadline=Deadline(None), split=True)
        return
    assert solved(one, cost, split=True, quantum=quantum) == best_split(one, cost, quantum)
