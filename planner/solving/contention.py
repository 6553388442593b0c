"""Contention: plan with transfers and computation that slow each other down.

Problem: families plan without contention (`planner.model.contention`). With it, durations depend on
the schedule. Which plan is shortest then? Method: fixed-point iteration. Plan with the durations
observed under the last plan, price the result under contention, repeat in the op order found. The
last search adds the processor time of a transfer to its start-up: a search ignores this cost
otherwise, and would send too often. The incumbent includes the plans of all other methods; adjacent
transfers are merged where that helps, before and after the searches. Stops within a `NEAR`-th of
the bound. Guarantee: no longer than the plans given first, unless time runs out; no bound.
Complexity: at most `ROUNDS` + 2 searches, and twice `MERGING` transfers priced. Source: own.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, Generic

from planner.model.contention import NO_CONTENTION
from planner.model.costs import scaled_cost
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.family import Family
from planner.solving.methods import Method, Outcome, named
from planner.solving.result import PlanT, ProblemT
from planner.solving.simulator import Iteration

ROUNDS = 1
"""Searches after the first one, before transfers are charged; more rounds found next to nothing."""

NEAR = 2000
"""Stop when the plan is within this fraction (1/NEAR) of its bound."""

PARTS = 1024
"""The mean slowdown of transfers is rounded up to a multiple of 1/PARTS."""

MANY = 5_000
"""Beyond this many transfers, only one search runs."""

MERGING = 10**6
"""Most transfers priced while neighbours are merged: enough for one pass over 1,000 transfers."""


@dataclass(frozen=True, slots=True)
class ContentionPlanner(Generic[ProblemT, PlanT]):
    """What a family provides for planning under contention."""

    lasts: Callable[[PlanT], int]  # makespan under contention (ns)
    transfers: Callable[[PlanT], Sequence[Hashable]]  # in their order
    # The problem without contention, with the durations observed under a plan (None: as given) and
    # this start-up (ns) added to each transfer.
    asked: Callable[[PlanT | None, int], ProblemT]
    search: Callable[[ProblemT], Iterable[Outcome[PlanT]]]  # plans for such a problem
    # The plan with the transfer at this place and the next one merged; None if they cannot be.
    joined: Callable[[PlanT, int], PlanT | None]


def plan_with_contention(
    family: Family[Any, PlanT, Any],
    problem: Any,
    search: Method[Any, PlanT],
    others: Iterable[Method[Any, PlanT]],
    least_ns: int,
    deadline: Deadline,
) -> Outcome[PlanT]:
    """Return the best plan found under contention for a problem with one cost of all transfers.

    `search` and each of `others` plan without contention; each of `others` runs once. `least_ns` is
    a lower bound.
    """
    alone = replace(problem, interference=NO_CONTENTION)

    def asked(plan: PlanT | None, charged_ns: int) -> Any:
        slower, lasted, apart = ({}, 0, 0) if plan is None else family.slowdown(problem, plan)
        factor = mean_slowdown(lasted, apart)
        cost = scaled_cost(
            problem.cost, startup=factor, rate=factor, extra_ns=charged_ns, rounding=ceil
        )
        return replace(alone, cost=cost, **slower)

    return best_under_contention(
        ContentionPlanner(
            lasts=lambda plan: family.lasting(problem, plan),
            transfers=lambda plan: range(family.transfers(plan)),
            asked=asked,
            search=lambda asked: (search(asked, deadline),),
            joined=lambda plan, place: family.merged(problem, plan, place),
        ),
        plans_of(alone, others, deadline),
        problem.interference.least_ns,
        deadline,
        least_ns,
    )


def best_under_contention(
    family: ContentionPlanner[ProblemT, PlanT],
    first: Iterable[Outcome[PlanT]],
    startup_ns: int,
    deadline: Deadline,
    least_ns: int = 0,
) -> Outcome[PlanT]:
    """Return the best plan found under contention.

    `first` are plans made without contention; if there are none, one search runs even after the
    deadline. `startup_ns` is the processor time of a transfer of any size, `least_ns` a lower
    bound.
    """
    best: tuple[int, PlanT] | None = None
    limited = False
    for outcome in first:
        limited |= outcome.timed_out
        best = _better(family, best, outcome)
        if best is not None and deadline.passed:  # pricing thousands of transfers takes long
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
        except InvalidInputError:  # so slow that its times exceed 63 bits
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


def with_contention(
    methods: Mapping[str, Method[Any, PlanT]], search: str, planned: Method[Any, PlanT]
) -> dict[str, Method[Any, PlanT]]:
    """Return the methods of a problem with contention: `auto` and `search` are `planned`.

    The others plan without contention; their bounds, which hold without it only, are dropped.
    """

    def alone(method: Method[Any, PlanT]) -> Method[Any, PlanT]:
        def run(problem: Any, deadline: Deadline) -> Outcome[PlanT]:
            return replace(
                method(replace(problem, interference=NO_CONTENTION), deadline), lower_bound=None
            )

        return run

    best = named(search, planned)
    return {
        name: best if name in ("auto", search) else alone(method)
        for name, method in methods.items()
    }


def plans_of(
    problem: ProblemT, methods: Iterable[Method[ProblemT, PlanT]], deadline: Deadline
) -> Iterator[Outcome[PlanT]]:
    """Yield the outcomes of methods until the deadline; skip those that do not apply."""
    for method in methods:
        if deadline.passed:
            return
        with suppress(NotApplicableError, TimeUpError):
            yield method(problem, deadline)


def _better(
    family: ContentionPlanner[ProblemT, PlanT],
    best: tuple[int, PlanT] | None,
    outcome: Outcome[PlanT],
) -> tuple[int, PlanT] | None:
    """Return the shorter of two plans with its makespan; among equals the first."""
    if outcome.plan is None:
        return best
    lasts = family.lasts(outcome.plan)
    return (lasts, outcome.plan) if best is None or lasts < best[0] else best


def _merged(
    family: ContentionPlanner[ProblemT, PlanT],
    lasts: int,
    plan: PlanT,
    deadline: Deadline,
    enough_ns: int,
) -> tuple[int, PlanT]:
    """Return a plan with adjacent transfers merged wherever that makes it shorter."""
    # Beyond 1,000 transfers a pass would not complete within the budget anyway: spend less.
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
    """Return the graph with the op durations of an iteration that ran the ops in this order."""
    spans = dict(zip(order, (*iteration.backward, *iteration.forward), strict=True))
    ops = (
        replace(op, duration_ns=spans[index][1] - spans[index][0])
        for index, op in enumerate(graph.ops)
    )
    return Graph(tuple(ops), graph.parameters)


def mean_slowdown(lasted_ns: int, alone_ns: int) -> Fraction:
    """Return the mean slowdown of transfers, rounded up."""
    factor = Fraction(lasted_ns, alone_ns) if alone_ns else Fraction(1)
    return Fraction(ceil(factor * PARTS), PARTS)
