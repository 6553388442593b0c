"""Tie-breaking: among plans of equal cost the simplest one, or the one least sensitive to delays.

Problem: many plans share the least cost. Fewer transfers lose less where start-ups are dearer than
thought; a plan less sensitive to delays loses less where something is late.
Rule: fewest transfers, then one algorithm rather than several, then fewest bytes. A family whose
exact methods find the fewest transfers says so (`Family.simplest`); elsewhere neighbouring
transfers are sent together where that costs nothing.
Guarantee: never dearer. No two neighbouring transfers of the plan can be sent together for free,
unless the time or `PRICED` cut in.
Complexity: at most `PRICED` transfers priced. Source: own.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.result import PlanT

Prefer = Literal["simple", "robust"]
"""Which of the plans of equal cost: the one with the fewest transfers, or the least sensitive."""

PRICED = 2 * 10**4
"""Transfers priced at most: 100 transfers are gone through twice within a second."""

# ---
# The plan least sensitive to delays, among those of equal makespan.
#
# Some plans start every transfer as late as possible, so that any delay propagates to the end. A
# delay (`Strain`) (t, c) multiplies all transfers by t and all computation by c. Plans are compared
# by makespan, then by the makespan under each of `STRAINS` in turn. Why these two:
# docs/how-it-works.md, "Of equally long plans". Complexity: O(transfers) per delay; `most_robust`
# tries as many targets as a bisection with jumps. Source: own; lexicographic min-max, as in
# recoverable robust scheduling.


class Strain(NamedTuple):
    """Factors on the times of all transfers, and of all computation."""

    transfer: int
    compute: int


class Limit(NamedTuple):
    """Largest makespan (ns) allowed under a delay."""

    strain: Strain
    most_ns: int


class Step(NamedTuple):
    """A transfer: its release time, its duration, and the computation that depends on it (ns)."""

    ready_ns: int
    duration_ns: int
    tail_ns: int


NOMINAL = Strain(1, 1)

STRAINS = (Strain(3, 2), Strain(2, 3))
"""Transfers half as slow again relative to computation, and the reverse."""


def end_under(strain: Strain, steps: Iterable[Step], compute_ns: int) -> int:
    """Return the makespan (ns) of transfers in order under a delay, at least all computation."""
    transfer, compute = strain
    free, end = 0, compute * compute_ns
    for ready, duration, tail in steps:
        free = max(free, compute * ready) + transfer * duration
        end = max(end, free + compute * tail)
    return end


def strained(steps: Sequence[Step], compute_ns: int) -> tuple[int, ...]:
    """Return the makespan under each of `STRAINS`: the second criterion."""
    return tuple(end_under(strain, steps, compute_ns) for strain in STRAINS)


def most_robust(
    plan: PlanT,
    value_ns: int,
    lasts: Callable[[PlanT, Strain], int],
    attempt: Callable[[Sequence[Limit], Limit], tuple[PlanT | None, int]],
    deadline: Deadline,
) -> PlanT:
    """Return the least delay-sensitive plan of equal makespan that `attempt` finds in time.

    `value_ns` is the least makespan. `lasts` returns a plan's makespan under a delay. `attempt`
    gets limits that some plan meets, and one more limit. It returns a plan that meets all and its
    makespan under the last delay, or None and a value (ns) below which the last limit is
    infeasible. It may raise `TimeUpError`.
    """
    limits = [Limit(NOMINAL, value_ns)]
    for strain in STRAINS:
        lower, upper = min(strain) * value_ns, lasts(plan, strain)
        target = upper - 1  # the known plan may already be the best
        while lower < upper:
            try:
                deadline.check()
                found, reached = attempt(limits, Limit(strain, target))
            except TimeUpError:
                return plan
            if found is None:
                lower = max(reached, target + 1)
            else:
                plan, upper = found, reached
            target = (lower + upper) // 2
        limits.append(Limit(strain, upper))
    return plan
