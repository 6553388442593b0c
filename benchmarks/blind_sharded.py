"""What a step takes whose parameters are sharded, as PyTorch's FSDP carries it out.

Every part of a batch (micro-batch) gathers each unit's parameters ahead of its forward pass, again
ahead of its backward pass if they were given up in between, and scatters its gradients behind it.
One channel carries it all, in that order; at most two gathered units wait to be computed. The
outermost unit, the first, is never given up in between.

`planner.iteration` plans what is gathered once; the costs of transfers are its own.

Complexity: O(units). Source: Zhao et al., "PyTorch FSDP", VLDB 2023, §3.3 and §3.4 (prefetching,
rate limiter).
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unit:
    """What is gathered and scattered at once: its computation, and what each transfer takes."""

    forward_ns: int
    backward_ns: int
    gather_ns: int
    scatter_ns: int


def part_ns(units: Sequence[Unit], *, reshard: bool) -> int:
    """Return how long a part of a batch takes: until all is computed and scattered."""
    channel = 0  # when it is free
    done = [0, 0]  # when units have been computed, in the order of computation
    for unit in units:
        channel = max(channel, done[-2]) + unit.gather_ns
        done.append(max(done[-1], channel) + unit.forward_ns)
    scatters: list[tuple[int, int]] = []  # ready when, and how long
    for place in range(len(units) - 1, -1, -1):
        unit = units[place]
        there = 0
        if reshard and place:
            channel = there = max(channel, done[-2]) + unit.gather_ns
        if scatters:  # the unit's before this one, behind the gather that was asked for first
            ready, lasts = scatters.pop()
            channel = max(channel, ready) + lasts
        done.append(max(done[-1], there) + unit.backward_ns)
        scatters.append((done[-1], unit.scatter_ns))
    ready, lasts = scatters.pop()
    return max(channel, ready) + lasts
