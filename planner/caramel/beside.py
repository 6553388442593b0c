"""Plans of gradient transfers beside which computation is slower.

Problem: as in `planner.caramel.search`, but a transfer takes processor time from the computation
beside it, and lasts longer there (`planner.interference`). When a gradient is ready depends on what
was sent before it.

Method: a fixed point. Given how long every op and transfer took under the last plan, plan as if
they always did; price what comes out with interference, and begin again. Transfers cost processor
time by the piece, which such a plan does not see: a second search charges it as start-up cost, and
so sends less often. The best plan seen is kept, those of all other methods among them; at last
neighbouring transfers are merged as long as that makes it shorter.

Guarantee: unless a time limit cuts in, none longer than the plan of any method that ignores
interference. The bound is that of
`planner.interference.bound_beside`, and those without interference.

Complexity: at most twice `ROUNDS` + 1 searches, and an evaluation for each transfer. Source: own.
"""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from math import ceil

from planner.caramel.evaluation import Evaluation, duration_ns, evaluate
from planner.caramel.problem import Group, NetworkCost, Part, Plan, Problem
from planner.costs import AffineCost, DepthCost, TableCost
from planner.deadline import Deadline, TimeUpError
from planner.errors import NotApplicableError
from planner.graphs import Graph
from planner.interference import ALONE
from planner.methods import Method, Outcome

__all__ = ["planned_beside"]

ROUNDS = 4
"""Searches after the first one, for each price of a transfer."""

PARTS = 1024
"""What transfers are slowed down by in the mean is rounded up to such a part."""


def planned_beside(
    problem: Problem,
    search: Method[Problem, Plan],
    others: Iterable[Method[Problem, Plan]],
    deadline: Deadline,
) -> Outcome[Plan]:
    """Return the best plan found for a problem with interference.

    Parameters
    ----------
    problem : Problem
        The problem.
    search : method
        Plans without interference.
    others : iterable of method
        Others that do, once each.
    deadline : Deadline
        When to stop.
    """
    best, least, limited = _first(problem, others, deadline)
    for charged in dict.fromkeys((0, problem.interference.startup_ns)):
        cost, graph = _raised(problem.cost, charged), problem.graph
        seen: set[tuple[Group, ...]] = set()
        while len(seen) <= ROUNDS and not (best and deadline.passed):
            asked = replace(problem, graph=graph, cost=cost, interference=ALONE)
            outcome = search(asked, deadline)
            plan, limited = outcome.plan, limited or outcome.timed_out
            assert plan is not None
            if plan.groups in seen:
                break
            seen.add(plan.groups)
            evaluation = evaluate(problem, plan)
            if best is None or evaluation.iteration_ns < least:
                best, least = plan, evaluation.iteration_ns
            graph, cost = _as_it_went(problem, plan, evaluation, charged)
    if best is not None:
        best = _merged(problem, best, least, deadline)
    return Outcome(best, timed_out=limited or deadline.passed)


def _merged(problem: Problem, plan: Plan, lasts: int, deadline: Deadline) -> Plan:
    """Return a plan with neighbouring transfers sent together wherever that makes it shorter."""
    place = 0
    while place + 1 < len(plan.groups) and not deadline.passed:
        first, second = plan.groups[place : place + 2]
        parts = _joined(first, second)
        if parts is not None:
            size = first.size_bytes + second.size_bytes
            begin = max(first.not_before_ns, second.not_before_ns)
            both = Group(parts, _best_depth(problem.cost, size), begin)
            tried = replace(plan, groups=(*plan.groups[:place], both, *plan.groups[place + 2 :]))
            shorter = evaluate(problem, tried).iteration_ns
            if shorter < lasts:
                plan, lasts = tried, shorter
                continue
        place += 1
    return plan


def _joined(first: Group, second: Group) -> tuple[Part, ...] | None:
    """Return the parts of two transfers, one of each parameter; None if there are gaps."""
    joined = {part.parameter: part for part in first.parts}
    for part in second.parts:
        own = joined.get(part.parameter, part)
        if own is not part and own.stop != part.start and part.stop != own.start:
            return None
        start, stop = min(own.start, part.start), max(own.stop, part.stop)
        joined[part.parameter] = Part(part.parameter, start, stop)
    return tuple(joined.values())


def _best_depth(cost: NetworkCost, size: int) -> int:
    return cost.best_depth(size) if isinstance(cost, DepthCost) else 1


def _first(
    problem: Problem, methods: Iterable[Method[Problem, Plan]], deadline: Deadline
) -> tuple[Plan | None, int, bool]:
    """Return the best plan of some methods, what it costs, and whether time was short."""
    best: Plan | None = None
    least, limited = 0, False
    alone = replace(problem, interference=ALONE)
    for method in methods:
        if deadline.passed:
            return best, least, True
        try:
            outcome = method(alone, deadline)
        except (NotApplicableError, TimeUpError):
            continue
        limited |= outcome.timed_out
        assert outcome.plan is not None
        lasts = evaluate(problem, outcome.plan).iteration_ns
        if best is None or lasts < least:
            best, least = outcome.plan, lasts
    return best, least, limited


def _as_it_went(
    problem: Problem, plan: Plan, evaluation: Evaluation, charged: int
) -> tuple[Graph, NetworkCost]:
    """Return ops and transfers that always last as long as they did under a plan."""
    iteration = evaluation.iteration
    order = (*plan.backward_orders[0], *plan.forward_order)
    spans = dict(zip(order, (*iteration.backward, *iteration.forward), strict=True))
    ops = (
        replace(op, duration_ns=spans[index][1] - spans[index][0])
        for index, op in enumerate(problem.graph.ops)
    )
    alone = sum(duration_ns(problem, group, plan.traffic) for group in plan.groups)
    factor = Fraction(evaluation.communication_ns, alone) if alone else Fraction(1)
    cost = _raised(problem.cost, charged, Fraction(ceil(factor * PARTS), PARTS))
    return Graph(tuple(ops), problem.graph.parameters), cost


def _raised(cost: NetworkCost, charged: int, factor: Fraction = Fraction(1)) -> NetworkCost:
    """Return a cost times a factor, with more start-up cost."""
    if isinstance(cost, DepthCost):
        return DepthCost(
            tuple((depth, _raised_one(at, charged, factor)) for depth, at in cost.by_depth)
        )
    return _raised_one(cost, charged, factor)


def _raised_one(
    cost: AffineCost | TableCost, charged: int, factor: Fraction
) -> AffineCost | TableCost:
    if isinstance(cost, AffineCost):
        return AffineCost(ceil(factor * cost.startup_ns) + charged, factor * cost.ns_per_byte)
    points = ((size, ceil(factor * time) + charged) for size, time in cost.points)
    return TableCost(tuple(points))
