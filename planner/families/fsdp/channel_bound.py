"""Lower bound by busy and idle channels (`work`): Lagrangian relaxation and shortest paths.

Problem: small units pay many start-ups, large units do not fit, units that are not kept are
gathered twice, and only transfers whose buffers fit overlap computation. How long does that take at
least?
Method: shortest path over the units that can fit, with idle time added, and a price per kept byte;
every price gives a bound, the best of `PRICES` is taken. Proof: docs/fsdp.md, "Why the bounds
hold".
Guarantee: bounds the iteration, without sums over replicas; of channels that share no links, only
gathers count, which bounds the end of the last computation.
Complexity: O(layers · layers of a unit²) per price, the last factor in C.
Source: own; the relaxation is Geoffrion's.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from math import ceil
from typing import NamedTuple

from planner.families.fsdp.min_memory import finest_units
from planner.families.fsdp.problem import Mesh, Problem
from planner.model.costs import TransferCost
from planner.solving.deadline import Deadline

PRICES = tuple(Fraction(2) ** power for power in range(-2, 5))
"""Prices of a kept byte, relative to the time per byte of gathering the whole model."""


class Fitting:
    """Necessary conditions for units to fit into memory: every plan satisfies them."""

    def __init__(self, problem: Problem, mesh: Mesh) -> None:
        assert problem.memory_bytes is not None
        self._sizes = problem.prefixes["parameter_bytes"]
        self._made = problem.prefixes["gradients"]
        self._shares = problem.share_sums[mesh.shards]
        least = map(min, problem.checkpoints, problem.activations)
        self._kept = tuple(accumulate(least, initial=0))
        self._following = (*problem.gradients, 0)
        self.room = problem.memory_bytes - problem.state_bytes(mesh.shards)

    def fits(self, start: int, stop: int, *, longer: bool = False) -> bool:
        """Return whether these layers can be a unit; if `longer`, a unit with later layers too.

        A longer unit may fit where a shorter one does not: less is scattered while it computes.
        """
        size, made = self._sizes[stop] - self._sizes[start], self._made[stop] - self._made[start]
        following, later = self._following[stop], self._shares[-1] - self._shares[stop]
        beside = max(following, later) if longer else following + later
        computing = self._kept[stop] + size + made + beside
        copying = 2 * made + self._kept[start] + later if made else 0
        return max(self._kept[start] + 2 * size, computing, copying) <= self.room

    def frees(self, start: int, stop: int) -> bool:
        """Return whether a unit can be gathered a second time."""
        size = self._sizes[stop] - self._sizes[start]
        later = self._shares[-1] - self._shares[stop]
        return self._kept[stop] + 2 * size + self._following[stop] + later <= self.room

    def for_buffers(self, start: int, stop: int, *, forward: bool) -> int:
        """Return the bytes left for buffers while a unit computes."""
        size, made = self._sizes[stop] - self._sizes[start], self._made[stop] - self._made[start]
        return self.room - self._kept[stop] - size - (0 if forward else made)

    def in_front(self, start: int, stop: int) -> tuple[tuple[int, int], int, int]:
        """Return limits on the bytes of the unit before this one.

        Returns limits on its parameters while it computes forward with this unit gathered, and
        while this unit computes backward; on its parameters gathered again while this unit's
        gradients are in memory; and on the sum of its parameters and gradients then.
        """
        size, made = self._sizes[stop] - self._sizes[start], self._made[stop] - self._made[start]
        later = self._shares[-1] - self._shares[stop]
        backward = self.room - self._kept[stop] - size - made - self._following[stop] - later
        left = self.room - self._kept[start] - made - later - self._shares[stop]
        left += self._shares[start]
        return (self.room - self._kept[start] - size, backward), left // 2, left

    @cached_property
    def turn(self) -> int:
        """Most bytes of parameters in memory when the forward pass ends."""
        return self.room - self._kept[-1]


class _Arc(NamedTuple):
    """A unit as an arc from its first to its last layer; times in ns.

    `busy`: time of the unit's transfers, gathered once, plus idle time if all transfers that fit
    proceed; `more_forward`, `more`: further idle time if no gather proceeds during its forward, or
    backward, computation. The last fields are the first place where the unit before may begin: if
    this unit is gathered ahead in the forward pass, and if that unit is kept or gathered ahead in
    the backward pass (`held`); if that unit is gathered again (`again`); in any case (`beside`).
    """

    before: int  # place of the first layer
    size: int
    frees: bool
    gather: int
    busy: int
    more_forward: int
    more: int
    held: tuple[int, int]
    again: int
    beside: int


def least_work(problem: Problem, mesh: Mesh, deadline: Deadline) -> Fraction:
    """Return the least busy and idle time, on one mesh on which something fits.

    Raises `TimeUpError`.
    """
    fitting = Fitting(problem, mesh)
    starts = [*(start for start, _ in finest_units(problem)), problem.layers]
    arcs = _arcs(problem, mesh, fitting, starts, deadline)
    total = problem.prefixes["parameter_bytes"][-1]
    rate = Fraction(mesh.gather_ns(total), total)

    best = Fraction(-1)
    for price in (Fraction(0), *PRICES):
        deadline.check()
        scale, each = (rate * price).denominator, (rate * price).numerator
        end = _behind_each_other(arcs, scale, each)
        bound = Fraction(end - each * fitting.turn, scale)
        if bound <= best:
            break  # concave in the price: once the bound falls, it keeps falling
        best = bound
    return best


def _arcs(
    problem: Problem, mesh: Mesh, fitting: Fitting, starts: Sequence[int], deadline: Deadline
) -> list[list[_Arc]]:
    """Return the units that can fit, by the place where they end."""
    together, sums = problem.channels != "two", problem.prefixes
    sizes, gradients = sums["parameter_bytes"], sums["gradients"]
    forward, backward = sums["forward_ns"], sums["backward_ns"]
    layers = problem.parameter_bytes
    gathers = _Ahead(mesh.all_gather, [*layers, *reversed(layers)])  # both passes, in order of use
    reduces = _Ahead(mesh.reduce_scatter, problem.gradients)
    size_at = [sizes[start] for start in starts]
    both_at = [sizes[start] + gradients[start] for start in starts]
    arcs: list[list[_Arc]] = [[] for _ in starts]
    for place, start in enumerate(starts[:-1]):
        deadline.check()
        for following in range(place + 1, len(starts)):
            stop = starts[following]
            size, made = sizes[stop] - sizes[start], gradients[stop] - gradients[start]
            if not fitting.fits(start, stop):
                if 2 * size > fitting.room:
                    break
                continue
            left = fitting.for_buffers(start, stop, forward=True)
            idle = max(forward[stop] - forward[start] - gathers.most(stop, left), 0)
            left = fitting.for_buffers(start, stop, forward=False)
            computes = backward[stop] - backward[start]
            ahead = gathers.most(2 * problem.layers - start, left)
            behind = reduces.most(stop, left) if together else 0
            backward_idle = max(computes - ahead - behind, 0)
            gather, reduce = mesh.gather_ns(size), mesh.reduce_ns(made) if together else 0
            kept, again, beside = fitting.in_front(start, stop)
            arcs[following].append(
                _Arc(
                    place,
                    size,
                    fitting.frees(start, stop) and stop < problem.layers,
                    gather,
                    gather + reduce + idle + backward_idle,
                    forward[stop] - forward[start] - idle,
                    max(computes - behind, 0) - backward_idle,
                    (
                        bisect_left(size_at, sizes[start] - kept[0]),
                        bisect_left(size_at, sizes[start] - kept[1]),
                    ),
                    bisect_left(size_at, sizes[start] - again),
                    bisect_left(both_at, both_at[place] - beside),
                )
            )
    return arcs


class _Ahead:
    """Longest transfer time of consecutive layers that fit into some bytes, over all units.

    Uses the least concave cost that is nowhere below the real cost: with it, two transfers never
    take less than one transfer of both.
    """

    def __init__(self, cost: TransferCost, sizes: Sequence[int]) -> None:
        above = concave_above(cost, sum(sizes))
        self._sizes = list(accumulate(sizes, initial=0))
        self._times = list(accumulate((above(size) if size else 0 for size in sizes), initial=0))

    def most(self, first: int, left: int) -> int:
        """Return the longest time for `left` bytes from a layer on."""
        last = bisect_right(self._sizes, self._sizes[first] + left) - 1
        return self._times[max(last, first)] - self._times[first]


def concave_above(cost: TransferCost, total: int) -> Callable[[int], int]:
    """Return the least concave upper bound on a cost up to `total` bytes, rounded up."""
    points: dict[int, Fraction] = {}
    for piece in cost.pieces():
        last = max(total, piece.start) if piece.stop is None else piece.stop
        for size in (piece.start, last):
            points[size] = max(points.get(size, Fraction(0)), piece.time(size))
    corners: list[tuple[int, Fraction]] = []
    for x, y in sorted(points.items()):
        while len(corners) > 1:
            (x0, y0), (x1, y1) = corners[-2:]
            if (y1 - y0) * (x - x0) > (y - y0) * (x1 - x0):
                break
            corners.pop()
        corners.append((x, y))

    def at(size: int) -> int:
        after = bisect_right(corners, size, key=lambda corner: corner[0])
        (x0, y0), (x1, y1) = corners[after - 1], corners[min(after, len(corners) - 1)]
        return ceil(y0 if x1 == x0 else y0 + (y1 - y0) * (size - x0) / (x1 - x0))

    return at


_NONE = 2**200
"""Time of an infeasible choice."""


class _Front:
    """Least times of units that end at a place, by the place where the last unit begins."""

    def __init__(self, place: int) -> None:
        self.kept = [_NONE] * place
        self.freed = [_NONE] * place
        self.alone = [_NONE] * place  # freed, with no gather during its forward computation
        self.any = [_NONE] * place


def _behind_each_other(arcs: Sequence[Sequence[_Arc]], scale: int, each: int) -> int:
    """Return the least busy and idle time, with a price for each kept byte."""
    fronts: list[_Front] = []
    for place, ending in enumerate(arcs):
        front = _Front(place)
        for arc in ending:
            before = 0 if not arc.before else _least(fronts[arc.before], arc, scale)
            time = before + arc.busy * scale
            front.kept[arc.before] = time + each * arc.size
            if arc.frees:
                front.freed[arc.before] = time + arc.gather * scale
                front.alone[arc.before] = time + (arc.gather + arc.more_forward) * scale
            front.any[arc.before] = min(front.kept[arc.before], front.freed[arc.before])
        fronts.append(front)
    return min(fronts[-1].any)


def _least(front: _Front, arc: _Arc, scale: int) -> int:
    """Return the least time of the units before a unit."""
    cuts = sorted({arc.beside, *arc.held, arc.again, arc.before})
    least = _NONE
    for low, high in pairwise(cut for cut in cuts if arc.beside <= cut <= arc.before):
        if low >= arc.held[1]:
            time = min((front.any if low >= arc.again else front.kept)[low:high])
        elif low >= arc.again:
            time = min((front.freed if low >= arc.held[0] else front.alone)[low:high])
            time += arc.more * scale
        else:  # it can neither be kept nor gathered again
            continue
        least = min(least, time)
    return least
