"""Of plans that last equally long, the one that bears being late best: the second criterion.

Problem: mostly many plans have the least makespan. If a search takes any of them, it may take one
in which every transfer leaves as late as it can; then whatever is late makes everything late.

Definition: under a *strain* (t, c) all transfers take t times as long and all computation c times.
Plans are compared by their makespan, then by that under each of `STRAINS`, in turn: first if
transfers take half as long again, then if computation does. Nothing is told apart beyond that.

Why these: to be late is to be slow for a while, and only the ratio of t to c matters. Tried on
iBatch's pushes (90 settings of six profiles; layers, network, a late gradient, ranks apart and
slow computation drawn at once), the mean time fell, from that of the fewest batches, by 1.5 % with
these two; by 0.2 % with transfers a fifth slower only, 1.0 % with computation a quarter slower
only, 1.6 % with four strains. The least sum of ends by bytes, of 30 of these settings, gave 0.9 %,
and is not near-linear. ``benchmarks/robustness.py`` measures what the two bring.

It is whole numbers throughout, does not change if all times are multiplied by a number or if
layers and parameters are called otherwise, and is symmetric in time, as pulls and pushes are.

Complexity: O(transfers) a strain. `most_robust` asks as many targets as a bisection in jumps.
Source: own; lexicographic min-max, as in recoverable robust scheduling.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from planner.deadline import Deadline, TimeUpError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "NOMINAL",
    "STRAINS",
    "Limit",
    "Step",
    "Strain",
    "end_under",
    "most_robust",
    "pareto",
    "strained",
]

PlanT = TypeVar("PlanT")


class Strain(NamedTuple):
    """By what the times of transfers, and those of computation, are multiplied."""

    transfer: int
    compute: int


class Limit(NamedTuple):
    """What a plan may last at most, in ns, under a strain."""

    strain: Strain
    most_ns: int


class Step(NamedTuple):
    """A transfer: when it is ready, how long it takes, and the computation left behind it (ns)."""

    ready_ns: int
    duration_ns: int
    tail_ns: int


NOMINAL = Strain(1, 1)

STRAINS = (Strain(3, 2), Strain(2, 3))
"""Transfers half as slow again as computation, and computation half as slow again as transfers."""


def end_under(strain: Strain, steps: Iterable[Step], compute_ns: int) -> int:
    """Return what a plan lasts under a strain.

    Parameters
    ----------
    strain : Strain
        The strain.
    steps : iterable of Step
        Its transfers, in the order in which they leave.
    compute_ns : int
        What it lasts at least, for computation.
    """
    transfer, compute = strain
    free, end = 0, compute * compute_ns
    for ready, duration, tail in steps:
        free = max(free, compute * ready) + transfer * duration
        end = max(end, free + compute * tail)
    return end


def strained(steps: Sequence[Step], compute_ns: int) -> tuple[int, ...]:
    """Return what a plan lasts under each of `STRAINS`: the second criterion."""
    return tuple(end_under(strain, steps, compute_ns) for strain in STRAINS)


def most_robust(
    plan: PlanT,
    value_ns: int,
    lasts: Callable[[PlanT, Strain], int],
    attempt: Callable[[Sequence[Limit], Limit], tuple[PlanT | None, int]],
    deadline: Deadline,
) -> tuple[PlanT, bool]:
    """Return the most robust plan that lasts as long as one that is known.

    Parameters
    ----------
    plan : PlanT
        The plan that is known.
    value_ns : int
        What it lasts: the least there is.
    lasts : callable
        Returns what a plan lasts under a strain.
    attempt : callable
        Is given limits that some plan keeps, and one more that none may. Returns a plan that keeps
        all and what it lasts under the last strain, or None and a number of ns below which the last
        limit cannot be kept. May raise `TimeUpError`.
    deadline : Deadline
        When to stop.

    Returns
    -------
    plan : PlanT
        The best one known.
    timed_out : bool
        Whether the deadline cut in before it was known to be the most robust.
    """
    limits = [Limit(NOMINAL, value_ns)]
    for strain in STRAINS:
        lower, upper = min(strain) * value_ns, lasts(plan, strain)
        target = upper - 1  # the plan that is known may be the best already
        while lower < upper:
            try:
                deadline.check()
                found, reached = attempt(limits, Limit(strain, target))
            except TimeUpError:
                return plan, True
            if found is None:
                lower = max(reached, target + 1)
            else:
                plan, upper = found, reached
            target = (lower + upper) // 2
        limits.append(Limit(strain, upper))
    return plan, False


def pareto(labels: "NDArray[Any]") -> "NDArray[np.int64]":
    """Return the columns that no other is at most as large as in every row, each once.

    Parameters
    ----------
    labels : ndarray, shape (criteria, labels)
        Whole numbers.
    """
    import numpy as np

    left, kept = np.arange(labels.shape[1]), []
    sums = labels.sum(axis=0)
    while len(left):
        best = left[sums[left].argmin()]  # no other is below it throughout
        kept.append(best)
        left = left[(labels[:, left] < labels[:, best, None]).any(axis=0)]
    return np.array(kept, dtype=np.int64)
