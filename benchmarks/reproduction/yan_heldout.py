"""Constants fitted to four rows of a half of Table 1, and scored on what they say of the others.

Problem: how well does the model predict ranks that its constants were not fitted to?

Method: a grid of values for the two fitted constants, wide and not centred on anything: powers of
1.1. For each of the 70 sets of four rows: all points of the grid at which these four come out in
the paper's order; of them the middle one (by the product of the constants); and at that point the
pairs with at least one of the other four rows. A coin would put half of them right.

Guarantee: the shapes of the networks, interference and threads are those of ``data/yan``, which
were chosen with all eight ranks in view; only the two constants are held out.

Complexity: one search of some 0.1 s a point of the grid, 1,989 points a half.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from statistics import fmean

from yan_ranks import Triple, given, order, pairs_right

from planner.families.yan import Problem

STEP = Fraction(11, 10)
MULADD_NS = tuple(Fraction(round(100 * STEP**power), 1000) for power in range(39))
"""From 0.1 ns, below the hardware's peak of 0.12 ns, to 3.7 ns."""

READ_EVERY = tuple(round(16 * STEP**power) for power in range(51))
"""From 16 samples to 1,878."""

KNOWN = 4

Orders = dict[tuple[Fraction, int], tuple[Triple, ...]]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well rows are ranked that constants were not fitted to.

    Attributes
    ----------
    sets, fitting : int
        Sets of rows fitted to, and those that some point of the grid puts in the paper's order.
    pairs : int
        Pairs scored for each of these.
    mean, worst, best : float
        Share of the pairs in the paper's order.
    """

    sets: int
    fitting: int
    pairs: int
    mean: float
    worst: float
    best: float


def orders(problem: Problem) -> Iterator[tuple[tuple[Fraction, int], tuple[Triple, ...]]]:
    """Yield each point of the grid with the order of the configurations there."""
    for muladd in MULADD_NS:
        constants = replace(problem.constants, muladd_ns=muladd)
        for reading in READ_EVERY:
            changed = replace(problem, constants=constants, read_every=reading)
            yield (muladd, reading), tuple(order(changed))


def held_out(problem: Problem, found: Orders) -> HeldOut:
    """Return the score over all sets of four rows."""
    paper = given(problem)
    sets = list(combinations(paper, KNOWN))
    shares, pairs = [], 0
    for known in sets:
        points = [
            point
            for point, one in found.items()
            if tuple(triple for triple in one if triple in known) == known
        ]
        if not points:
            continue
        points.sort(key=lambda point: (point[0] * point[1], point))
        right, pairs = pairs_right(found[points[len(points) // 2]], paper, known)
        shares.append(right / pairs)
    return HeldOut(len(sets), len(shares), pairs, fmean(shares), min(shares), max(shares))
