"""What the channels have to carry at least under a memory limit: start-ups count, too.

Problem: small units pay many start-ups, large ones do not fit, and what is not kept is gathered
twice. How long are the channels busy at least?

Method: which units fit at all is told by what is in memory in their own steps, with the fewest
activations and nothing ahead. Each unit of a partition is gathered once, or, kept, twice; all that
is kept is in memory when the forward pass ends. With a price for each byte kept, minus that price
for what memory holds then, the shortest path through the layers is a bound (Lagrange), whatever the
price; the best of some is taken.

Guarantee: a bound on the time that gathers (and reduce-scatters, if they share links) take.
Complexity: O(layers · layers of a unit) a price. Source: own; the relaxation is Geoffrion's.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from planner.deadline import Deadline
from planner.fsdp.least import finest
from planner.fsdp.problem import Mesh, Problem

__all__ = ["Fitting", "Work", "least_work"]

PRICES = tuple(Fraction(2) ** power for power in range(-2, 5))
"""Of a byte that is kept, in the time that a byte of the whole takes to be gathered."""


class Work(NamedTuple):
    """How long all gathers take at least; and with all reduce-scatters."""

    gathers: Fraction
    both: Fraction


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
        own = self._shares[stop] - self._shares[start]
        computing = self._kept[stop] + size + made + self._following[stop] + later
        copying = 2 * made + self._kept[start] + later + own if made else 0
        return max(self._kept[start] + 2 * size, computing, copying) <= self.room

    def frees(self, start: int, stop: int) -> bool:
        """Return whether a unit can be gathered a second time."""
        size = self._sizes[stop] - self._sizes[start]
        later = self._shares[-1] - self._shares[stop]
        return self._kept[stop] + 2 * size + self._following[stop] + later <= self.room

    @cached_property
    def turn(self) -> int:
        """Bytes of parameters that can be there when the forward pass ends."""
        return self.room - self._kept[-1]


def least_work(problem: Problem, mesh: Mesh, deadline: Deadline) -> Work:
    """Return the bound on one mesh on which something fits."""
    fitting = Fitting(problem, mesh)
    sums, shares = problem.prefixes, problem.share_sums(mesh.shards)
    sizes, gradients = sums["parameter_bytes"], sums["gradients"]
    starts = [*(start for start, _ in finest(problem)), problem.layers]
    units: list[list[tuple[int, int, int, int, bool]]] = []
    for place, start in enumerate(starts[:-1]):
        deadline.check()
        fit = []
        for following in range(place + 1, len(starts)):
            stop = starts[following]
            if not fitting.fits(start, stop):
                if 2 * (sizes[stop] - sizes[start]) > fitting.room:
                    break
                continue
            gather = mesh.gather_ns(sizes[stop] - sizes[start])
            made = gradients[stop] - gradients[start]
            reduce = mesh.reduce_ns(made, shares[stop] - shares[start])
            size = sizes[stop] - sizes[start]
            fit.append((following, gather, reduce, size, fitting.frees(start, stop)))
        units.append(fit)
    rate = Fraction(mesh.gather_ns(sizes[-1]), sizes[-1])
    paths = [_path(units, rate * price, fitting.turn) for price in (Fraction(0), *PRICES)]
    return Work(max(path.gathers for path in paths), max(path.both for path in paths))


def _path(
    units: Sequence[Sequence[tuple[int, int, int, int, bool]]], price: Fraction, turn: int
) -> Work:
    """Return the least work with a price for what is kept, less that of what memory holds."""
    scale, each = price.denominator, price.numerator
    gathers, both = [0], [0]  # from the last layer on, behind each other
    for place in range(len(units) - 1, -1, -1):
        first = second = None
        for following, gather, reduce, size, frees in units[place]:
            kept = gather * scale + each * size
            once = min(kept, 2 * gather * scale) if frees else kept
            behind = len(units) - following
            alone = once + gathers[behind]
            whole = once + reduce * scale + both[behind]
            first = alone if first is None or alone < first else first
            second = whole if second is None or whole < second else second
        if first is None or second is None:  # no unit begins here: no way leads through it
            first, second = 2**200, 2**200
        gathers.append(first)
        both.append(second)
    return Work(Fraction(gathers[-1] - each * turn, scale), Fraction(both[-1] - each * turn, scale))
