"""What the channels have to carry at least under a memory limit, and how long they have to idle.

Problem: small units pay many start-ups, large ones do not fit, what is not kept is gathered twice,
and while a unit computes only those transfers go on whose buffers fit beside it. How long does all
of that take at least?

Method: which units fit at all is told by what is in memory in their own steps, with the fewest
activations and nothing ahead. Each unit of a partition is gathered twice, or once if it is kept;
all that is kept is in memory when the forward pass ends. While a unit computes, gathers are on
their way for the next layers as far as memory reaches, and reduce-scatters of the last ones; each
layer by itself takes longest. The rest of its time the channels idle: that is added. Sums over
copies take no part in that: where they share the links, they could fill all of it, and it is not
counted. With a price for each byte kept, minus that price for what memory holds then, the shortest
path through the layers is a bound (Lagrange), whatever the price; the best of some is taken.

Guarantee: a bound on the time up to the end of the last computation for gathers alone, and of an
iteration for gathers and reduce-scatters that share links.
Complexity: O(layers · layers of a unit · log layers) a price. Source: own; the relaxation is
Geoffrion's.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import ceil
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

    @cached_property
    def turn(self) -> int:
        """Bytes of parameters that can be there when the forward pass ends."""
        return self.room - self._kept[-1]


class _Arc(NamedTuple):
    """A unit as a step through the layers; times in ns."""

    following: int  # the smallest unit behind it
    size: int
    frees: bool
    gather: int
    reduce: int
    idle_apart: int  # while it computes, of the channel of gathers
    idle_both: int  # of the links that carry both
    sums: int


def least_work(problem: Problem, mesh: Mesh, deadline: Deadline) -> Work:
    """Return the bound on one mesh on which something fits."""
    fitting, apart = Fitting(problem, mesh), problem.apart(mesh)
    sums, shares = problem.prefixes, problem.share_sums(mesh.shards)
    sizes, gradients = sums["parameter_bytes"], sums["gradients"]
    forward, backward = sums["forward_ns"], sums["backward_ns"]
    gathers, reduces = _ahead(problem, mesh)
    starts = [*(start for start, _ in finest(problem)), problem.layers]
    arcs: list[list[_Arc]] = []
    for place, start in enumerate(starts[:-1]):
        deadline.check()
        fit = []
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
            alone = backward[stop] - backward[start]
            alone -= gathers.most(2 * problem.layers - start, left)
            fit.append(
                _Arc(
                    following,
                    size,
                    fitting.frees(start, stop),
                    mesh.gather_ns(size),
                    mesh.reduce_ns(made),
                    idle + max(alone, 0),
                    idle + max(alone - reduces.most(stop, left), 0),
                    0 if apart else mesh.sum_ns(shares[stop] - shares[start]),
                )
            )
        arcs.append(fit)
    rate = Fraction(mesh.gather_ns(sizes[-1]), sizes[-1])
    paths = [_path(arcs, rate * price, fitting.turn) for price in (Fraction(0), *PRICES)]
    return Work(*map(max, zip(*paths, strict=True)))


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


def _path(arcs: Sequence[Sequence[_Arc]], price: Fraction, turn: int) -> Work:
    """Return the least time with a price for what is kept, less that of what memory holds."""
    scale, each = price.denominator, price.numerator
    gathers, both, shared = [0], [0], [0]  # from the last layer on, behind each other
    for place in range(len(arcs) - 1, -1, -1):
        first = second = third = 2**200  # if no unit begins here, no way leads through it
        for arc in arcs[place]:
            kept = arc.gather * scale + each * arc.size
            once = min(kept, 2 * arc.gather * scale) if arc.frees else kept
            behind = len(arcs) - arc.following
            first = min(first, once + arc.idle_apart * scale + gathers[behind])
            second = min(second, once + (arc.reduce + arc.idle_both) * scale + both[behind])
            third = min(third, once + (arc.reduce + arc.sums) * scale + shared[behind])
        gathers.append(first)
        both.append(second)
        shared.append(third)
    ends = (gathers[-1], both[-1], shared[-1])
    return Work(*(Fraction(end - each * turn, scale) for end in ends))
