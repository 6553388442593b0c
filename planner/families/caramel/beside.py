"""Gradient transfers under contention (`beside`: transfers that overlap computation).

Problem: as in `planner.families.caramel.search`, but a transfer takes processor time from the
computation that overlaps it, and lasts longer there (`planner.model.contention`). Method: the fixed
point of `planner.solving.contention`, with the search for plans without contention, starting from
the plans of all methods. Guarantee: never longer than the plan of any method that ignores
contention, unless the time limit cuts in. The lower bound is the larger of the bound under
contention and the bounds without it. Complexity: that of `planner.solving.contention`. Source: own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil

from planner.families.caramel.evaluation import duration_ns, evaluate
from planner.families.caramel.problem import Plan, Problem
from planner.model.contention import ALONE, bound_beside
from planner.model.costs import DepthCost, scaled_cost
from planner.solving.contention import Beside, best_beside, mean_slowdown, plans_of, slowed
from planner.solving.deadline import Deadline
from planner.solving.methods import Method, Outcome
from planner.solving.transfers import Part, Transfer


def planned_beside(
    problem: Problem,
    search: Method[Problem, Plan],
    others: Iterable[Method[Problem, Plan]],
    deadline: Deadline,
) -> Outcome[Plan]:
    """Return the best plan found under contention.

    `search` and each of `others` plan without contention; each of `others` runs once.
    """
    alone = replace(problem, interference=ALONE)

    def asked(plan: Plan | None, charged: int) -> Problem:
        if plan is None:
            return replace(alone, cost=scaled_cost(problem.cost, extra_ns=charged))
        evaluation = evaluate(problem, plan)
        order = (*plan.backward_orders[0], *plan.forward_order)
        names = problem.graph.names_of(order)
        lasted = sum(duration_ns(problem, group, plan.traffic) for group in plan.groups)
        factor = mean_slowdown(evaluation.communication_ns, lasted)
        return replace(
            alone,
            graph=slowed(problem.graph, order, evaluation.iteration),
            cost=scaled_cost(
                problem.cost, startup=factor, rate=factor, extra_ns=charged, rounding=ceil
            ),
            op_order=names,
        )

    family = Beside(
        lasts=lambda plan: evaluate(problem, plan).iteration_ns,
        transfers=lambda plan: plan.groups,
        asked=asked,
        search=lambda asked: (search(asked, deadline),),
        joined=lambda plan, place: merged(problem, plan, place),
    )
    least = bound_beside(
        problem.interference, problem.windows.compute_ns, 0, problem.cost, problem.windows.sizes
    )
    first = plans_of(alone, others, deadline)
    return best_beside(family, first, problem.interference.least_ns, deadline, least)


def merged(problem: Problem, plan: Plan, place: int) -> Plan | None:
    """Return the plan with a group and the next group sent together, or None if there are gaps."""
    first, second = plan.groups[place : place + 2]
    parts = joined(first.parts, second.parts)
    if parts is None:
        return None
    size = first.size_bytes + second.size_bytes
    depth = problem.cost.best_depth(size) if isinstance(problem.cost, DepthCost) else 1
    both = Transfer(parts, depth, max(first.not_before_ns, second.not_before_ns))
    return replace(plan, groups=(*plan.groups[:place], both, *plan.groups[place + 2 :]))


def joined(first: Sequence[Part], second: Sequence[Part]) -> tuple[Part, ...] | None:
    """Return the parts of two transfers, one part per parameter, or None if there are gaps."""
    parts: dict[int, Part] = {}
    for part in (*first, *second):
        own = parts.get(part.parameter, part)
        if own is not part and own.stop != part.start and part.stop != own.start:
            return None
        start, stop = min(own.start, part.start), max(own.stop, part.stop)
        parts[part.parameter] = Part(part.parameter, start, stop)
    return tuple(parts.values())
