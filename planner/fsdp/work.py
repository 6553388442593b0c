"""What the channels have to carry at least under a memory limit, and how long they have to idle.

Problem: small units pay many start-ups, large ones do not fit, what is not kept is gathered twice,
and while a unit computes only those transfers go on whose buffers fit beside it. How long does all
of that take at least?

Method: which units fit at all is told by what is in memory in their own steps, with the fewest
activations and nothing ahead, and, of two that follow each other, with what the one leaves while
the other computes: its gradients' buffer, and its parameters if they are kept, or gathered ahead.
Each unit is gathered twice, or once if it is kept; all that is kept is in memory when the forward
pass ends. While a unit computes, gathers are on their way for the next layers as far as memory
reaches, for none if the next unit does not fit, and reduce-scatters of the last ones; each layer by
itself takes longest. The rest of its time the channels idle: that is added. Sums over copies take
no part in that: where they share the links, they could fill all of it, and it is not counted. With
a price for each byte kept, minus that price for what memory holds then, the shortest path through
the units is a bound (Lagrange), whatever the price; the best of some is taken.

Guarantee: a bound on the time up to the end of the last computation for gathers alone, and of an
iteration for gathers and reduce-scatters that share links.
Complexity: O(layers · layers of a unit²) a price, its last factor in C. Source: own; the relaxation
is Geoffrion's.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate, pairwise
from math import ceil
from operator import add
from typing import NamedTuple

from planner.costs import TransferCost
from planner.deadline import Deadline
from planner.fsdp.least import finest
from planner.fsdp.problem import Mesh, Problem

__all__ = ["Fitting", "Work", "least_work"]

PRICES = tuple(Fraction(2) ** power for power in range(-2, 5))
"""Of a byte that is kept, in the time that a byte of the whole takes to be gathered."""


class Work(NamedTuple):
    """How long the channels are busy and idle: of gathers alone, and with reduce-scatters.

    And how long they are busy with all that shares links.
    """

    gathers: Fraction
    both: Fraction
    shared: Fraction


class Fitting:
    """Which units fit into memory at all: a test that every plan passes."""

    def __init__(self, problem: Problem, mesh: Mesh) -> None:
        assert problem.memory_bytes is not None
        self._sizes = problem.prefixes["parameter_bytes"]
        self._made = problem.prefixes["gradients"]
        self._shares = problem.share_sums(mesh.shards)
        least = map(min, problem.checkpoints, problem.activations)
        self._kept = tuple(accumulate(least, initial=0))
        self._following = (*problem.gradients, 0)
        self.room = problem.memory_bytes - problem.state_bytes(mesh.shards)

    def fits(self, start: int, stop: int) -> bool:
        """Return whether layers can be a unit."""
        size, made = self._sizes[stop] - self._sizes[start], self._made[stop] - self._made[start]
        later = self._shares[-1] - self._shares[stop]
        computing = self._kept[stop] + size + made + self._following[stop] + later
        copying = 2 * made + self._kept[start] + later if made else 0
        return max(self._kept[start] + 2 * size, computing, copying) <= self.room

    def frees(self, start: int, stop: int) -> bool:
        """Return whether a unit can be gathered a second time."""
        size = self._sizes[stop] - self._sizes[start]
        later = self._shares[-1] - self._shares[stop]
        return self._kept[stop] + 2 * size + self._following[stop] + later <= self.room

    def beside(self, start: int, stop: int, *, forward: bool) -> int:
        """Return the bytes of buffers that there can be beside a unit that computes."""
        size, made = self._sizes[stop] - self._sizes[start], self._made[stop] - self._made[start]
        return self.room - self._kept[stop] - size - (0 if forward else made)

    def in_front(self, start: int, stop: int) -> tuple[tuple[int, int], int, int]:
        """Return how much another unit can have that ends where this one starts.

        Parameters that are there while it computes forward and this one's are gathered, and while
        this one computes backward; those that are gathered again beside this one's gradients; and
        parameters and gradients together, beside them.
        """
        size, made = self._sizes[stop] - self._sizes[start], self._made[stop] - self._made[start]
        later = self._shares[-1] - self._shares[stop]
        backward = self.room - self._kept[stop] - size - made - self._following[stop] - later
        left = self.room - self._kept[start] - made - later - self._shares[stop]
        left += self._shares[start]
        return (self.room - self._kept[start] - size, backward), left // 2, left

    @cached_property
    def turn(self) -> int:
        """Bytes of parameters that can be there when the forward pass ends."""
        return self.room - self._kept[-1]


class _Arc(NamedTuple):
    """A unit as a step through the layers; times in ns.

    Idle is a channel of gathers, or one of all, that carries what fits, and `more` if the next unit
    does not. What can be in front is told by the first place where it may begin: to have this one's
    gathered ahead in the forward pass, or its own in the backward pass, or kept (`held`); to be
    gathered again; to be there at all (`beside`).
    """

    before: int  # place of the first layer
    size: int
    frees: bool
    gather: int
    reduce: int
    sums: int
    idle: tuple[int, int]
    more_forward: int
    more: tuple[int, int]
    held: tuple[int, int]
    again: int
    beside: int


def least_work(problem: Problem, mesh: Mesh, deadline: Deadline) -> Work:
    """Return the bound on one mesh on which something fits."""
    fitting = Fitting(problem, mesh)
    starts = [*(start for start, _ in finest(problem)), problem.layers]
    arcs = _arcs(problem, mesh, fitting, starts, deadline)
    total = problem.prefixes["parameter_bytes"][-1]
    rate = Fraction(mesh.gather_ns(total), total)

    def priced(end: Callable[[int, int], int]) -> Fraction:
        """Return the best bound of some prices.

        Each is the least of what is linear in the price: once it falls, it goes on falling.
        """
        best = Fraction(-1)
        for price in (Fraction(0), *PRICES):
            deadline.check()
            scale, each = (rate * price).denominator, (rate * price).numerator
            bound = Fraction(end(scale, each) - each * fitting.turn, scale)
            if bound <= best:
                break
            best = bound
        return best

    return Work(
        priced(partial(_behind_each_other, arcs, 0)),
        priced(partial(_behind_each_other, arcs, 1)),
        priced(partial(_all_sent, arcs)),
    )


def _arcs(
    problem: Problem, mesh: Mesh, fitting: "Fitting", starts: Sequence[int], deadline: Deadline
) -> list[list[_Arc]]:
    """Return the units that fit, by the place where they end."""
    apart = problem.apart(mesh)
    sums, shares = problem.prefixes, problem.share_sums(mesh.shards)
    sizes, gradients = sums["parameter_bytes"], sums["gradients"]
    forward, backward = sums["forward_ns"], sums["backward_ns"]
    gathers, reduces = _ahead(problem, mesh)
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
            left = fitting.beside(start, stop, forward=True)
            idle = max(forward[stop] - forward[start] - gathers.most(stop, left), 0)
            left = fitting.beside(start, stop, forward=False)
            computes = backward[stop] - backward[start]
            ahead = gathers.most(2 * problem.layers - start, left)
            behind = reduces.most(stop, left)
            apart_idle, both_idle = max(computes - ahead, 0), max(computes - ahead - behind, 0)
            kept, again, beside = fitting.in_front(start, stop)
            arcs[following].append(
                _Arc(
                    place,
                    size,
                    fitting.frees(start, stop) and stop < problem.layers,
                    mesh.gather_ns(size),
                    mesh.reduce_ns(made),
                    0 if apart else mesh.sum_ns(shares[stop] - shares[start]),
                    (idle + apart_idle, idle + both_idle),
                    forward[stop] - forward[start] - idle,
                    (computes - apart_idle, max(computes - behind, 0) - both_idle),
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
    """What transfers of consecutive layers that fit into some bytes take at most, in any units.

    By the least concave cost that is nowhere below the real one: of it two transfers never take
    less than one of both.
    """

    def __init__(self, cost: TransferCost, sizes: Sequence[int]) -> None:
        above = _concave_above(cost, sum(sizes))
        self._sizes = list(accumulate(sizes, initial=0))
        self._times = list(accumulate((above(size) if size else 0 for size in sizes), initial=0))

    def most(self, first: int, left: int) -> int:
        """Return the most time, from a layer on."""
        last = bisect_right(self._sizes, self._sizes[first] + left) - 1
        return self._times[max(last, first)] - self._times[first]


def _ahead(problem: Problem, mesh: Mesh) -> tuple[_Ahead, _Ahead]:
    """Return what gathers, in order of use in both passes, and reductions take in some bytes."""
    sizes = problem.parameter_bytes
    return (
        _Ahead(mesh.all_gather, [*sizes, *reversed(sizes)]),
        _Ahead(mesh.reduce_scatter, problem.gradients),
    )


def _concave_above(cost: TransferCost, total: int) -> Callable[[int], int]:
    """Return the least concave cost of up to `total` bytes that is nowhere below, rounded up."""
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
"""The time of what there is not."""


def _all_sent(arcs: Sequence[Sequence[_Arc]], scale: int, each: int) -> int:
    """Return the least time of all transfers, whatever fits beside them."""
    least = [0]
    for ending in arcs[1:]:
        times = [least[arc.before] + (arc.reduce + arc.sums) * scale for arc in ending]
        kept = [arc.gather * scale + each * arc.size for arc in ending]
        twice = [2 * arc.gather * scale if arc.frees else _NONE for arc in ending]
        least.append(min(map(add, times, map(min, kept, twice)), default=_NONE))
    return least[-1]


class _Front:
    """The least times with a unit that ends at some place, by the place where it begins."""

    def __init__(self, place: int) -> None:
        self.kept = [_NONE] * place
        self.freed = [_NONE] * place
        self.alone = [_NONE] * place  # freed, and nothing is gathered while it computes forward
        self.any = [_NONE] * place


def _behind_each_other(arcs: Sequence[Sequence[_Arc]], which: int, scale: int, each: int) -> int:
    """Return the least time of gathers, or of both kinds, in channels that idle."""
    fronts: list[_Front] = []
    for place, ending in enumerate(arcs):
        front = _Front(place)
        for arc in ending:
            before = 0 if not arc.before else _least(fronts[arc.before], arc, which, scale)
            own = arc.gather + arc.idle[which] + which * arc.reduce
            time = before + own * scale
            front.kept[arc.before] = time + each * arc.size
            if arc.frees:
                front.freed[arc.before] = time + arc.gather * scale
                front.alone[arc.before] = time + (arc.gather + arc.more_forward) * scale
            front.any[arc.before] = min(front.kept[arc.before], front.freed[arc.before])
        fronts.append(front)
    return min(fronts[-1].any)


def _least(front: _Front, arc: _Arc, which: int, scale: int) -> int:
    """Return the least time of what can be in front of a unit."""
    cuts = sorted({arc.beside, *arc.held, arc.again, arc.before})
    least = _NONE
    for low, high in pairwise(cut for cut in cuts if arc.beside <= cut <= arc.before):
        if low >= arc.held[1]:
            time = min((front.any if low >= arc.again else front.kept)[low:high])
        elif low >= arc.again:
            time = min((front.freed if low >= arc.held[0] else front.alone)[low:high])
            time += arc.more[which] * scale
        else:  # neither kept nor gathered again
            continue
        least = min(least, time)
    return least
