"""Tie-breaking: among plans of equal cost the simplest one, or the one least sensitive to delays.

Problem: many plans share the least cost. Fewer transfers lose less where start-ups cost more than
assumed; a plan less sensitive to delays loses less where something is late.
Rule: fewest transfers, then one algorithm rather than several, then fewest bytes. A family whose
exact methods find the fewest transfers says so (`Family.simplest`); elsewhere neighbouring
transfers are sent together where that costs nothing.
Guarantee: the cost never rises. No two neighbouring transfers of the plan can be sent together for
free, unless the time limit or `PRICED` is reached.
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
# delay (`Delay`) (t, c) multiplies all transfers by t and all computation by c. Plans are compared
# by makespan, then by the makespan under each of `DELAYS`, in that order. Why these two:
# docs/how-it-works.md, "Of equally long plans". Complexity: O(transfers) per delay; `most_robust`
# tries as many targets as a bisection with jumps. Source: own; lexicographic min-max, as in
# recoverable robust scheduling.


class Delay(NamedTuple):
    """Factors on the times of all transfers, and of all computation."""

    transfer: int
    compute: int


class Limit(NamedTuple):
    """Largest makespan (ns) allowed under a delay."""

    delay: Delay
    most_ns: int


class Step(NamedTuple):
    """A transfer: its release time, its duration, and the computation that depends on it (ns)."""

    ready_ns: int
    duration_ns: int
    tail_ns: int


NOMINAL = Delay(1, 1)

DELAYS = (Delay(3, 2), Delay(2, 3))
"""Transfers half as slow again relative to computation, and the reverse."""


def delayed_makespan(delay: Delay, steps: Iterable[Step], compute_ns: int) -> int:
    """Return the makespan (ns) of transfers in order under a delay, at least all computation."""
    transfer, compute = delay
    free, end = 0, compute * compute_ns
    for ready, duration, tail in steps:
        free = max(free, compute * ready) + transfer * duration
        end = max(end, free + compute * tail)
    return end


def delayed_makespans(steps: Sequence[Step], compute_ns: int) -> tuple[int, ...]:
    """Return the makespan under each of `DELAYS`: the second criterion."""
    return tuple(delayed_makespan(delay, steps, compute_ns) for delay in DELAYS)


def most_robust(
    plan: PlanT,
    value_ns: int,
    lasts: Callable[[PlanT, Delay], int],
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
    for delay in DELAYS:
        lower, upper = min(delay) * value_ns, lasts(plan, delay)
        target = upper - 1  # the known plan may already be the best
        while lower < upper:
            try:
                deadline.check()
                found, reached = attempt(limits, Limit(delay, target))
            except TimeUpError:
                return plan
            if found is None:
                lower = max(reached, target + 1)
            else:
                plan, upper = found, reached
            target = (lower + upper) // 2
        limits.append(Limit(delay, upper))
    return plan
