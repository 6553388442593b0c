"""The relaxation is met where nothing can be better: that is how a looser one is noticed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.ibatch import Problem, solve
from planner.families.ibatch.bounds import relaxation
from planner.model.costs import TableCost

times = st.integers(0, 50)
rows = st.lists(st.tuples(times, times), min_size=1, max_size=7)


@given(rows, st.sampled_from(["pull", "push"]))
def test_without_start_ups_the_bound_is_the_optimum(
    layers: list[tuple[int, int]], direction: Any
) -> None:
    """Layer by layer nothing waits for more than it needs."""
    sending, computing = zip(*layers, strict=True)
    problem = Problem(startup_ns=0, transfer_ns=sending, compute_ns=computing, direction=direction)
    assert relaxation(problem) == solve(problem, method="layer_by_layer").objective_ns


@pytest.mark.parametrize("objective", ["makespan", "eq4"])
@given(times, times, times)
def test_the_bound_of_one_layer_is_its_time(
    objective: Any, startup: int, sending: int, computing: int
) -> None:
    problem = Problem(
        startup_ns=startup, transfer_ns=[sending], compute_ns=[computing], objective=objective
    )
    assert relaxation(problem) == startup + sending + computing


@given(st.integers(0, 9), st.integers(1, 50), times)
def test_a_small_transfer_takes_what_the_smallest_measured_one_does(
    size: int, time: int, computing: int
) -> None:
    """And a table that goes through 0 has no transfer below its rate."""
    table = TableCost(((10, time), (20, 2 * time)))
    problem = Problem(layer_bytes=[size], cost=table, compute_ns=[computing])
    assert relaxation(problem) == time + computing
    problem = Problem(layer_bytes=[10 * size + 10], cost=table, compute_ns=[computing])
    assert relaxation(problem) == (size + 1) * time + computing
