"""Local search on the size and the start of each transfer; urgency decides what it carries.

Problem: choose contents and order of transfers whose windows are not nested.
Rule: the k-th transfer starts when the network is free, not before a given moment, with the ready
bytes of the longest tails, up to a given size. Threshold accepting (simulated annealing with a
deterministic acceptance rule) changes these sizes and moments, mostly in the critical block.
Guarantee: never worse than the start. For given starts and sizes the most urgent bytes first are
optimal: docs/caramel.md, "Why urgent bytes first". A fixed seed and integer times give the same
answer on every machine.
Complexity: O(n) per simulated transfer, in NumPy; a step simulates the transfers it changes.
Source: own; threshold accepting: Dueck and Scheuer, J. Comput. Phys. 90 (1990).
"""

from bisect import bisect_left
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.families.caramel.one_machine import list_schedule
from planner.families.caramel.pricing import Load, LoadPricer
from planner.solving.deadline import Deadline

_STEPS = ("back", "back", "forth", "forth", "grow", "shrink", "merge", "cut", "wait", "wait", "go")

FIRST_THRESHOLD = 8
"""Initial threshold: a step may worsen the value by this many per mille."""

Size = tuple[int, int]
"""Largest number of bytes of a transfer, and its earliest start (ns)."""


class _State(NamedTuple):
    """The state of a run before a transfer: the bytes left to send, and the value so far."""

    left: NDArray[np.int64]
    rest: int
    free: int
    value: int
    begin: int
    first: int
    last: int


class _Run(NamedTuple):
    """Transfers, the state before each, the iteration time, and the transfers that determine it."""

    sizes: list[Size]
    states: list[_State]
    value: int
    first: int
    last: int


def resize(
    pricer: LoadPricer,
    loads: Sequence[Load],
    target: int,
    budget: int,
    element_bytes: int,
    deadline: Deadline,
) -> list[Load]:
    """Return loads at least as good as `loads`, by threshold accepting over `budget` transfers.

    The search ends at `target`, a lower bound.
    """
    heads = pricer.windows.heads
    sizes = [(sum(size for _, size in load), max(heads[j] for j, _ in load)) for load in loads]
    if len(sizes) < budget:  # else no step is left, and the states would fill the memory
        simulation, random = _Simulation(pricer), Random(0)
        run = simulation.run(sizes)
        assert run is not None
        now = best = run
        most = best.value * FIRST_THRESHOLD // 1000
        while simulation.transfers < budget and best.value > target and not deadline.passed:
            left = budget - simulation.transfers
            place, sizes = _changed(now, simulation.moments, element_bytes, random)
            limit = now.value + most * left * left // budget // budget
            changed = simulation.run(sizes, now.states[: place + 1], limit)
            if changed is not None:
                now = changed
                best = now if now.value < best.value else best
        sizes = best.sizes
    resized = list_schedule(pricer, sizes, element_bytes)
    return min(list(loads), resized, key=pricer.iteration_ns)


class _Simulation:
    """Simulates transfers of given sizes, the most urgent bytes first."""

    def __init__(self, pricer: LoadPricer) -> None:
        known = pricer.windows
        self.cost_ns = pricer.cost_ns
        order = sorted(range(len(known.sizes)), key=lambda j: (-known.tails[j], j))
        self.sizes = np.array([known.sizes[j] for j in order], dtype=np.int64)
        self.heads = np.array([known.heads[j] for j in order], dtype=np.int64)
        self.tails = [known.tails[j] for j in order]
        self.moments = sorted(set(known.heads))

        start = _State(self.sizes, sum(known.sizes), 0, known.compute_ns, 0, 0, -1)
        self.start = [start]
        self.transfers = 0

    def run(
        self, sizes: Sequence[Size], known: Sequence[_State] = (), limit: int | None = None
    ) -> _Run | None:
        """Return the run with these sizes, or None if the iteration lasts longer than `limit`.

        After the last size, one more transfer carries everything that is ready. `known` are the
        first states of an earlier run with the same first sizes.
        """
        states = list(known or self.start)
        left, rest, free, value, begin, first, last = states.pop()
        used = list(sizes[: len(states)])
        while rest:
            states.append(_State(left, rest, free, value, begin, first, last))
            most, wanted = sizes[len(used)] if len(used) < len(sizes) else (rest, 0)
            start = max(free, wanted)
            late, upto = self._ready(left, start)
            if not upto[-1]:  # wait for the next gradient
                start = int(self.heads[left > 0].min())
                late, upto = self._ready(left, start)
            self.transfers += 1
            # Parameters are sorted by falling tails, so the first `sent` ready bytes are the most
            # urgent. Parameters before `place` leave whole, the one at `place` in part.
            sent = min(most, int(upto[-1]))
            place = int(upto.searchsorted(sent))
            tail = self.tails[int(upto.searchsorted(1))]
            left = left.copy()
            left[:place] *= late[:place]
            left[place] = int(upto[place]) - sent
            if start > free:
                begin = len(used)
            free = start + self.cost_ns(sent)
            if free + tail > value:
                value, first, last = free + tail, begin, len(used)
                if limit is not None and value > limit:
                    return None
            used.append((sent, wanted))
            rest -= sent
        return _Run(used, states, value, first, max(last, first))

    def _ready(
        self, left: NDArray[np.int64], moment: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return which parameters are not ready yet, and the cumulative ready bytes."""
        late = self.heads > moment
        return late, np.where(late, 0, left).cumsum()


def _changed(
    now: _Run, moments: Sequence[int], element_bytes: int, random: Random
) -> tuple[int, list[Size]]:
    """Return the place of one random step, mostly in the critical block, and the new sizes."""
    sizes = list(now.sizes)
    near = range(max(now.first - 1, 0), min(now.last + 2, len(sizes)))
    place = random.choice(near) if random.getrandbits(2) else random.randrange(len(sizes))
    size, start = sizes[place]
    part = size >> random.randint(1, 12)
    part = max(part - part % element_bytes, element_bytes)
    behind = place + 1 < len(sizes)
    match random.choice(_STEPS):
        case "back" if behind and size > part:
            sizes[place] = (size - part, start)
            sizes[place + 1] = (sizes[place + 1][0] + part, sizes[place + 1][1])
        case "forth" if behind and sizes[place + 1][0] > part:
            sizes[place] = (size + part, start)
            sizes[place + 1] = (sizes[place + 1][0] - part, sizes[place + 1][1])
        case "grow":
            sizes[place] = (size + part, start)
        case "shrink" if size > part:
            sizes[place] = (size - part, start)
        case "merge" if behind:
            sizes[place : place + 2] = [(size + sizes[place + 1][0], start)]
        case "cut" if size > part:
            sizes[place : place + 1] = [(size - part, start), (part, 0)]
        case "wait":
            which = bisect_left(moments, start) + random.randint(-4, 4)
            sizes[place] = (size, moments[min(max(which, 0), len(moments) - 1)])
        case _:
            sizes[place] = (size, 0)
    return place, sizes
