"""Plans of whole iterations under contention (`beside`: transfers that overlap computation).

Problem: as in `planner.families.iteration.alternatives`, for one algorithm and one mode, under
contention between transfers and computation (`planner.model.contention`). Method: all baselines'
plans are candidates. Sharded plans are searched by the fixed point of `planner.solving.contention`;
all-reduces were searched before, by `planner.caramel`. Guarantee: the best returned
plan is no longer than any baseline's plan and any plan made without contention, unless the time
limit cuts in. No bound is proven. Complexity: that of `planner.solving.contention`, and of the
baselines. Source: own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil
from typing import TypeAlias

from planner.families.caramel.pricing import joined
from planner.families.iteration.baselines import BY_ANY_ALGORITHM, plans_by
from planner.families.iteration.bounds import bound
from planner.families.iteration.evaluation import cost_of, evaluate
from planner.families.iteration.plan import Mixture, Mode, Plan, Way
from planner.families.iteration.problem import Problem
from planner.families.iteration.transfer_limit import capped, settled
from planner.model.contention import ALONE
from planner.model.costs import scaled_cost
from planner.solving.contention import Beside, best_beside, mean_slowdown, slowed
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome
from planner.solving.transfers import Transfer

Search: TypeAlias = Callable[[Problem, Way, int, Deadline], tuple[list[Plan], bool]]
"""A search for pushes and pulls: takes a bound and a deadline, says whether the time cut in."""


def planned_beside(
    problem: Problem,
    way: Way,
    mode: Mode,
    plans: Sequence[Plan],
    search: Search,
    deadline: Deadline,
) -> tuple[list[Plan], bool]:
    """Return plans of one mode under contention, and whether the time limit cut in.

    `plans`, made without contention, are among them; `search` makes sharded plans without it.
    """
    by_rule, timed_out = plans_by(BY_ANY_ALGORITHM, problem, way, deadline)
    known = [*plans, *(plan for plan in by_rule if plan.mode == mode)]
    if mode == "replicated" or deadline.passed:
        return known, timed_out or deadline.passed
    cluster = replace(problem.cluster, interference=ALONE)
    order = problem.base.order
    names = problem.graph.names_of((*order.backward, *order.forward))
    alone = replace(problem, cluster=cluster, op_order=names)

    def asked(plan: Plan | None, charged: int) -> tuple[Problem, Way]:
        if plan is None:
            return alone, _raised(way, charged)
        evaluation = evaluate(problem, plan)
        order = (*plan.backward_orders[0], *plan.forward_order)
        lasted = sum(
            cost_of(problem.costs, plan, transfer).cost_ns(transfer.size_bytes)
            for transfer in plan.transfers
        )
        graph = slowed(problem.graph, order, evaluation.iteration)
        factor = mean_slowdown(evaluation.communication_ns, lasted)
        return replace(alone, graph=graph), _raised(way, charged, factor)

    def searched(asked: tuple[Problem, Way]) -> Iterator[Outcome[Plan]]:
        least = bound(*asked, "sharded", brief=True)
        made, late = search(*asked, least, deadline)
        for plan in made:
            yield Outcome(fitting(plan), timed_out=late)

    def fitting(plan: Plan) -> Plan:
        return settled(capped(problem, plan), way)

    family = Beside(
        lasts=lambda plan: evaluate(problem, plan).iteration_ns,
        transfers=lambda plan: plan.transfers,
        asked=asked,
        search=searched,
        joined=lambda plan, place: with_both(problem, way, plan, place),
    )
    first = (Outcome(fitting(plan)) for plan in known)
    least = bound(problem, way, mode, brief=True)
    startup = problem.beside("push").least_ns
    outcome = best_beside(family, first, startup, deadline, least)
    assert outcome.plan is not None
    return [*known, outcome.plan], timed_out or outcome.timed_out


def with_both(problem: Problem, way: Way, plan: Plan, place: int) -> Plan | None:
    """Return the plan with a transfer and the next one of its kind merged, or None."""
    first, second = plan.transfers[place : place + 2]
    room = problem.room("sharded")
    if first.kind != second.kind or (
        room is not None and first.size_bytes + second.size_bytes > room
    ):
        return None
    parts = joined(first.parts, second.parts)
    if parts is None:
        return None
    both = Transfer(parts, 1, max(first.not_before_ns, second.not_before_ns), first.kind)
    transfers = (*plan.transfers[:place], both, *plan.transfers[place + 2 :])
    return settled(replace(plan, transfers=transfers), way)


def _raised(way: Way, charged: int, factor: Fraction = Fraction(1)) -> Way:
    """Return a way whose halves cost `factor` times as much, and `charged` ns more per transfer."""
    later = partial(scaled_cost, startup=factor, rate=factor, extra_ns=charged, rounding=ceil)
    if isinstance(way, Mixture):
        return replace(way, options=tuple(option.changed(later) for option in way.options))
    return way.changed(later)
