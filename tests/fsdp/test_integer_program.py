"""Units of PyTorch's integer program against brute force, by its own objective."""

from itertools import pairwise, product

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.fsdp import Problem
from planner.families.fsdp.baselines import MAX_STARTS, fsdp_milp, units_exposing_least
from planner.families.fsdp.checker import checked_peak
from planner.families.fsdp.min_memory import spread
from tests.fsdp.making import problems
from tests.fsdp.test_rules import chain


def exposed(problem: Problem, ranges: list[tuple[int, int]]) -> int:
    (mesh,) = problem.meshes
    gather, scatter, forward, backward = (
        [cost(sum(values[start:stop])) for start, stop in ranges]
        for cost, values in (
            (mesh.gather_ns, problem.parameter_bytes),
            (mesh.reduce_ns, problem.gradients),
            (int, problem.forward_ns),
            (int, problem.backward_ns),
        )
    )
    time = gather[0] + scatter[0]
    for i in range(len(ranges)):
        if i + 1 < len(ranges):
            time += max(0, gather[i + 1] - forward[i])
        before = gather[i - 1] if i else 0
        behind = scatter[i + 1] if i + 1 < len(ranges) else 0
        time += max(0, before + behind - backward[i])
    return time


@settings(max_examples=150)
@given(problems(max_layers=6), st.integers(1, 40))
def test_no_units_expose_less(problem: Problem, most: int) -> None:
    layers = problem.layers
    allowed = []
    for cuts in product((False, True), repeat=layers - 1):
        starts = [0, *(layer + 1 for layer, cut in enumerate(cuts) if cut), layers]
        units = list(pairwise(starts))
        if all(
            stop - start == 1 or sum(problem.parameter_bytes[start:stop]) <= most
            for start, stop in units
        ):
            allowed.append(units)
    chosen = list(units_exposing_least(problem, 0, most))
    assert chosen in allowed
    assert exposed(problem, chosen) == min(exposed(problem, units) for units in allowed)


@settings(max_examples=20)
@given(problems(max_layers=4))
def test_units_get_smaller_until_they_fit(problem: Problem) -> None:
    smallest = problem.within(1)
    least = checked_peak(problem, fsdp_milp(smallest))
    assert checked_peak(problem, fsdp_milp(problem.within(least))) <= least


def test_long_chains_are_cut_at_some_blocks() -> None:
    count = 3 * MAX_STARTS
    problem = chain(count)
    starts = spread(problem, [(layer, layer + 1) for layer in range(count)], MAX_STARTS)
    assert starts == list(range(0, count, 3))
    units = units_exposing_least(problem, 0)
    assert {start for start, _ in units} <= set(starts)
    assert [stop for _, stop in units] == [*(start for start, _ in units[1:]), count]
