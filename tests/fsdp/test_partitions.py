"""The best units without a memory limit, and what any units take, with few choices kept."""

from itertools import pairwise, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.fsdp import Mesh, Problem
from planner.families.fsdp.partitions import _Choices, _undominated, best_units
from tests.fsdp.making import problems


def followed(problem: Problem, mesh: Mesh, cuts: tuple[int, ...]) -> int:
    """Return what an iteration takes by units that start at the cuts."""
    shares = [-(-size // mesh.shards) for size in problem.gradients]
    there = now = 0
    units = list(pairwise([*cuts, problem.layers]))
    for start, stop in units:
        there += mesh.gather_ns(sum(problem.parameter_bytes[start:stop]))
        now = max(now, there) + sum(problem.forward_ns[start:stop])
    scattered = summed = 0
    for start, stop in reversed(units):
        now += sum(problem.backward_ns[start:stop])
        added = mesh.sum_ns(sum(shares[start:stop]))
        scattered = max(scattered, now) + mesh.reduce_ns(sum(problem.gradients[start:stop]))
        if problem.apart(mesh):
            summed = max(summed, scattered) + added
        else:
            summed = scattered = scattered + added
    return max(now, summed)


@settings(max_examples=1500)
@given(problems(max_layers=7), st.integers(1, 3), st.data())
def test_bound_and_plan_enclose_the_best(problem: Problem, kept: int, data: st.DataObject) -> None:
    (mesh,) = problem.meshes
    layers = problem.layers
    allowed = {
        (start, stop)
        for start in range(layers)
        for stop in range(start + 1, layers + 1)
        if stop == start + 1 or data.draw(st.booleans(), label=f"{start} to {stop}")
    }
    cuts = [
        (0, *(layer + 1 for layer, cut in enumerate(chosen) if cut))
        for chosen in product((False, True), repeat=layers - 1)
    ]
    times = {
        units: followed(problem, mesh, units)
        for units in cuts
        if allowed.issuperset(pairwise([*units, layers]))
    }
    for number in (kept, 1000):
        units = best_units(
            problem,
            mesh,
            fits=lambda start, stop: (start, stop) in allowed,
            kept=number,
            bounded=True,
        )
        starts = tuple(start for start, _ in units.ranges)
        assert times[starts] == units.iteration_ns
        assert units.bound_ns <= min(times.values()) <= units.iteration_ns
    assert units.bound_ns == units.iteration_ns  # nothing was left out


_ENDS = st.tuples(*[st.integers(0, 5)] * 3)


@given(st.lists(_ENDS, max_size=12))
def test_only_what_another_choice_has_all_as_early_is_left_out(
    ends: list[tuple[int, int, int]],
) -> None:
    columns = np.array(ends, np.int64).reshape(-1, 3).T
    kept = _undominated(_Choices.of(*columns, 0, np.arange(len(ends))))
    least = {
        end
        for end in ends
        if not any(other != end and all(map(int.__le__, other, end)) for other in ends)
    }
    rows = [ends[row] for row in kept.behind]
    assert set(rows) == least
    assert len(rows) == len(least)
    assert rows == sorted(rows)
