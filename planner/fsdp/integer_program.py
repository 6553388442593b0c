"""Units by the model of PyTorch's integer program ("ILP for auto FSDP wrapping").

Problem: minimise the exposed time of a simple model of gathers and reduce-scatters. The model, and
how this version differs: docs/fsdp.md, "What the rules do".
Method: own, in place of CBC: dynamic programming from the last unit to the first over
Pareto-optimal pairs of exposed time and the next unit's reduce-scatter.
Guarantee: least exposed time up to `MAX_STARTS` blocks. More blocks are joined into that many
pieces of about equal bytes.
Complexity: O(blocks³ · Pareto-optimal labels).
Source: PyTorch, ``torch/distributed/_tools/fsdp_ilp.py`` of pull request 138635, 2024, reverted
since; the variant that frees parameters after the forward pass.
"""

from typing import Any, NamedTuple

from planner.fsdp.least import spread, wrapped
from planner.fsdp.problem import Problem
from planner.solving.pareto import staircase

__all__ = ["MAX_STARTS", "units_exposing_least"]

MAX_STARTS = 32
"""Most blocks at which units may begin."""


class _Label(NamedTuple):
    exposed: int
    scatters: int  # reduce-scatter time of the next unit
    number: int
    units: Any  # linked list: (end of the next unit, units after it)


class _Unit(NamedTuple):
    gather: int
    reduce: int
    forward: int
    backward: int


def units_exposing_least(
    problem: Problem, mesh: int, most_bytes: int | None = None
) -> tuple[tuple[int, int], ...]:
    """Return the units; those of several blocks have at most `most_bytes` of parameters."""
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
    # Labels of each unit: time exposed in forward steps from it on, and in backward steps after it.
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
