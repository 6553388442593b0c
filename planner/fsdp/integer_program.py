"""Units by the model of PyTorch's integer program ("ILP for auto FSDP wrapping").

Problem: which blocks shall be one unit? While one unit computes forward the next is gathered; while
it computes backward the one before it is gathered again, and the gradients of the one behind it are
scattered; what takes longer is exposed. With transfers P (gather) and G (scatter) and computation F
and B of units 1..k the program minimises

    P_1 + G_1 + sum over i of max(0, P_{i+1} - F_i) + max(0, P_{i-1} + G_{i+1} - B_i).

What differs: units are contiguous here, so there is no root that holds what is in no other; memory
is that of the simulator, not the program's own count.

Method (ours, in place of CBC, which PyTorch runs to a gap of 5 %): from the last unit to the first;
of the units behind a given one it matters what they expose, and what the next one scatters, so of
both only undominated pairs are kept.

Guarantee: least exposed time, of up to `MAX_STARTS` blocks; of more, in as many pieces of about as
many bytes.
Complexity: O(blocks³ · undominated). Source: PyTorch, ``torch/distributed/_tools/fsdp_ilp.py`` of
pull request 138635, 2024, reverted since; as it frees parameters behind the forward pass.
"""

from typing import Any, NamedTuple

from planner.fsdp.least import spread, wrapped
from planner.fsdp.problem import Problem
from planner.solving.pareto import staircase

__all__ = ["MAX_STARTS", "units_exposing_least"]

MAX_STARTS = 32
"""Blocks that units may begin with."""


class _Label(NamedTuple):
    exposed: int
    scatters: int  # what the unit behind takes
    number: int
    units: Any  # where the next one ends, and those behind it


class _Unit(NamedTuple):
    gather: int
    reduce: int
    forward: int
    backward: int


def units_exposing_least(
    problem: Problem, mesh: int, most_bytes: int | None = None
) -> tuple[tuple[int, int], ...]:
    """Return the units.

    Parameters
    ----------
    problem : Problem
        The problem; its memory limit is disregarded.
    mesh : int
        Place of the mesh.
    most_bytes : int, optional
        Parameters of the largest unit of several blocks.
    """
    starts = [*spread(problem, wrapped(problem), MAX_STARTS), problem.layers]
    over, sums = problem.meshes[mesh], problem.prefixes
    sizes, gradients = sums["parameter_bytes"], sums["gradients"]

    def unit(start: int, stop: int) -> _Unit:
        return _Unit(
            over.gather_ns(sizes[stop] - sizes[start]),
            over.reduce_ns(gradients[stop] - gradients[start]),
            sums["forward_ns"][stop] - sums["forward_ns"][start],
            sums["backward_ns"][stop] - sums["backward_ns"][start],
        )

    last = len(starts) - 1
    units: dict[tuple[int, int], _Unit] = {}
    for begin in range(last):
        for end in range(begin + 1, last + 1):
            size = sizes[starts[end]] - sizes[starts[begin]]
            if most_bytes is None or end == begin + 1 or size <= most_bytes:
                units[begin, end] = unit(starts[begin], starts[end])
    # Of each unit, what those behind it expose, its own gather included but not its second one.
    labels: dict[tuple[int, int], list[_Label]] = {}
    for begin, end in sorted(units, reverse=True):
        if end == last:
            labels[begin, end] = [_Label(0, 0, 1, None)]
            continue
        own, tried = units[begin, end], []
        for stop in range(end + 1, last + 1):
            if (end, stop) not in labels:
                continue
            behind = units[end, stop]
            for label in labels[end, stop]:
                exposed = label.exposed + max(0, behind.gather - own.forward)
                exposed += max(0, own.gather + label.scatters - behind.backward)
                number = label.number + 1
                tried.append(_Label(exposed, behind.reduce, number, (stop, label.units)))
        labels[begin, end] = staircase(tried, lambda label: label[:3], lambda label: label.scatters)
    best: tuple[int, int, int, Any] | None = None
    for end in range(1, last + 1):
        for label in labels.get((0, end), ()):
            own = units[0, end]
            exposed = label.exposed + own.gather + own.reduce
            exposed += max(0, label.scatters - own.backward)
            if best is None or (exposed, label.number) < best[:2]:
                best = exposed, label.number, end, label.units
    assert best is not None
    ranges, begin, end, trail = [], 0, best[2], best[3]
    while True:
        ranges.append((starts[begin], starts[end]))
        if trail is None:
            return tuple(ranges)
        begin, (end, trail) = end, trail
