"""Plans of transfers beside which computation is slower, whatever family plans them.

Problem: a family plans as if transfers and computation ran undisturbed. They do not
(`planner.interference`): when something is ready depends on what was sent before it. Which of the
plans it can make lasts least then?

Method: a fixed point. Given how long everything took under the last plan, plan as if it always did;
price what comes out with interference, and begin again, in the op order that was found. Transfers
cost processor time by the piece, which such a plan does not see: the last search charges it as
start-up cost, and so sends less often. The best plan seen is kept, those of all other methods among
them; neighbouring transfers of the best are merged as long as that makes it shorter, before the
searches and after them. A plan within a `NEAR`-th of its bound is left at that.

Guarantee: unless a time limit cuts in, none longer than any of the plans it is given first. It
proves no bound.

Complexity: at most `ROUNDS` + 2 searches, and twice `MERGING` transfers priced. Source: own.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Generic, TypeVar

from planner.deadline import Deadline, TimeUpError
from planner.errors import InvalidInputError, NotApplicableError
from planner.graphs import Graph
from planner.simulator import Iteration
from planner.solving.methods import Method, Outcome

__all__ = [
    "Beside",
    "best_beside",
    "mean_slowdown",
    "plans_of",
    "slowed",
]

ProblemT = TypeVar("ProblemT")
PlanT = TypeVar("PlanT")

ROUNDS = 1
"""Searches after the first one, before transfers are charged; more found next to nothing."""

NEAR = 2000
"""A plan as near to its bound, relatively, is left at that."""

PARTS = 1024
"""What transfers are slowed down by in the mean is rounded up to such a part."""

MANY = 5_000
"""Transfers of a plan beyond which one search has to do."""

MERGING = 10**6
"""Transfers priced at most while neighbours are merged: enough to go through 1,000 once."""


@dataclass(frozen=True, slots=True)
class Beside(Generic[ProblemT, PlanT]):
    """What a family knows of its plans.

    Attributes
    ----------
    lasts : callable
        Returns what a plan lasts, with interference.
    transfers : callable
        Returns the transfers of a plan, in their order.
    asked : callable
        Is given a plan, or None, and a start-up cost. Returns the problem without interference in
        which everything always lasts as it did under the plan, and every transfer so much longer.
    search : callable
        Plans such a problem: one or several plans.
    joined : callable
        Returns a plan with two neighbouring transfers, of which the first is named by its place,
        sent together; None if they cannot be.
    """

    lasts: Callable[[PlanT], int]
    transfers: Callable[[PlanT], Sequence[Hashable]]
    asked: Callable[[PlanT | None, int], ProblemT]
    search: Callable[[ProblemT], Iterable[Outcome[PlanT]]]
    joined: Callable[[PlanT, int], PlanT | None]


def best_beside(
    family: Beside[ProblemT, PlanT],
    first: Iterable[Outcome[PlanT]],
    startup_ns: int,
    deadline: Deadline,
    least_ns: int = 0,
) -> Outcome[PlanT]:
    """Return the best plan found with interference.

    Parameters
    ----------
    family : Beside
        What is planned.
    first : iterable of Outcome
        What others plan, who know of none.
    startup_ns : int
        Processor time of a transfer, whatever its size.
    deadline : Deadline
        When to stop. If nothing is planned first, one search is made even then.
    least_ns : int
        What no plan undercuts.
    """
    best: tuple[int, PlanT] | None = None
    limited = False
    for outcome in first:
        limited |= outcome.timed_out
        best = _better(family, best, outcome)
        if best is not None and deadline.passed:  # each price of thousands of transfers takes long
            break
    enough = least_ns + least_ns // NEAR
    merged = best = best and _merged(family, *best, deadline, enough)
    plan: PlanT | None = None
    for charged in (*(0,) * (1 + ROUNDS), startup_ns):
        if best is not None and (deadline.passed or best[0] <= enough):
            break
        if plan is not None and len(family.transfers(plan)) > MANY:
            break
        try:
            asked = family.asked(plan, charged)
        except InvalidInputError:  # so slow that its times cannot be counted
            continue
        found: tuple[int, PlanT] | None = None
        for outcome in family.search(asked):
            limited |= outcome.timed_out
            found = _better(family, found, outcome)
            if found is not None and deadline.passed:
                break
        assert found is not None
        plan = found[1]
        best = found if best is None or found[0] < best[0] else best
    assert best is not None
    if best is not merged:
        best = _merged(family, *best, deadline, enough)
    return Outcome(best[1], timed_out=limited or (deadline.passed and best[0] > enough))


def plans_of(
    problem: ProblemT, methods: Iterable[Method[ProblemT, PlanT]], deadline: Deadline
) -> Iterator[Outcome[PlanT]]:
    """Yield what methods plan for a problem, until a deadline; those that do not apply nothing."""
    for method in methods:
        if deadline.passed:
            return
        with suppress(NotApplicableError, TimeUpError):
            yield method(problem, deadline)


def _better(
    family: Beside[ProblemT, PlanT], best: tuple[int, PlanT] | None, outcome: Outcome[PlanT]
) -> tuple[int, PlanT] | None:
    """Return the shorter of two plans, and what it lasts; of equally long ones the first."""
    if outcome.plan is None:
        return best
    lasts = family.lasts(outcome.plan)
    return (lasts, outcome.plan) if best is None or lasts < best[0] else best


def _merged(
    family: Beside[ProblemT, PlanT], lasts: int, plan: PlanT, deadline: Deadline, enough_ns: int
) -> tuple[int, PlanT]:
    """Return a plan with neighbouring transfers sent together wherever that makes it shorter."""
    # Fewer prices, too, of a plan so long that they would end before it does.
    place, left = 0, MERGING**2 // max(MERGING, len(family.transfers(plan)) ** 2)
    while (count := len(family.transfers(plan))) > place + 1 and left > 0:
        if deadline.passed or lasts <= enough_ns:
            break
        tried = family.joined(plan, place)
        if tried is not None:
            left -= count
            shorter = family.lasts(tried)
            if shorter < lasts:
                plan, lasts = tried, shorter
                continue
        place += 1
    return lasts, plan


def slowed(graph: Graph, order: Sequence[int], iteration: Iteration) -> Graph:
    """Return a graph whose ops always last as long as in one iteration, in which they ran so."""
    spans = dict(zip(order, (*iteration.backward, *iteration.forward), strict=True))
    ops = (
        replace(op, duration_ns=spans[index][1] - spans[index][0])
        for index, op in enumerate(graph.ops)
    )
    return Graph(tuple(ops), graph.parameters)


def mean_slowdown(lasted_ns: int, alone_ns: int) -> Fraction:
    """Return how many times as long as alone transfers lasted in all, rounded up."""
    factor = Fraction(lasted_ns, alone_ns) if alone_ns else Fraction(1)
    return Fraction(ceil(factor * PARTS), PARTS)
