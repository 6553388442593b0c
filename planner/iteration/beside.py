"""Plans of whole iterations beside which computation is slower.

Problem: as in `planner.iteration.alternatives`, for one algorithm and one mode, where transfers and
computation disturb each other (`planner.interference`).

Method: every rule's plan is one to choose from. Sharded ones are searched by `planner.beside`: by
the search that knows no interference, from the plans that it and the rules make. All-reduces have
been by then, in `planner.caramel.beside`.

Guarantee: unless a time limit cuts in, the best of what is returned is no longer than any rule's
plan, nor than what is made without interference. It proves no bound.

Complexity: that of `planner.beside`, and of the rules. Source: own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil
from typing import TypeAlias

from planner.beside import Beside, best_beside, mean_slowdown, slowed
from planner.caramel.beside import joined
from planner.costs import AffineCost, scaled_cost
from planner.deadline import Deadline, TimeUpError
from planner.errors import NotApplicableError
from planner.interference import ALONE
from planner.iteration.bounds import bound
from planner.iteration.evaluation import cost_of, evaluate
from planner.iteration.mixing import settled
from planner.iteration.plan import Mode, Plan, Transfer
from planner.iteration.problem import Problem
from planner.iteration.room import capped
from planner.iteration.rules import BY_ANY_ALGORITHM
from planner.iteration.ways import Mixture, Synchronisation, Way
from planner.solving.methods import Outcome

__all__ = ["planned_beside", "with_both"]

Search: TypeAlias = Callable[[Problem, Way, int, Deadline, bool], tuple[list[Plan], bool]]
"""What plans pushes and pulls: with a bound, a deadline, and whether to search."""


def planned_beside(
    problem: Problem,
    way: Way,
    mode: Mode,
    plans: Sequence[Plan],
    search: Search,
    deadline: Deadline,
) -> tuple[list[Plan], bool]:
    """Return plans of one mode that bear interference, and whether the time limit cut in.

    Parameters
    ----------
    problem : Problem
        The problem.
    way : Way
        What transfers cost.
    mode : {"replicated", "sharded"}
        Which plans.
    plans : sequence of Plan
        What is made for it; these are returned too.
    search : callable
        Makes plans of pushes and pulls without interference.
    deadline : Deadline
        When to stop.
    """
    by_rule, timed_out = _by_rules(problem, way, mode, deadline)
    known = [*plans, *by_rule]
    if mode == "replicated" or deadline.passed:
        return known, timed_out or deadline.passed
    cluster = replace(problem.cluster, interference=ALONE)
    order = problem.base.order
    names = tuple(problem.graph.ops[index].name for index in (*order.backward, *order.forward))
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
        made, late = search(*asked, least, deadline, True)
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


def _by_rules(
    problem: Problem, way: Way, mode: Mode, deadline: Deadline
) -> tuple[list[Plan], bool]:
    """Return the plans of one mode that rules make, and whether the time limit cut in."""
    plans: list[Plan] = []
    for rule in BY_ANY_ALGORITHM.values():
        if deadline.passed:
            return plans, True
        try:
            plan = rule(problem, way, deadline)
        except NotApplicableError:
            continue
        except TimeUpError:
            return plans, True
        if plan.mode == mode:
            plans.append(plan)
    return plans, False


def with_both(problem: Problem, way: Way, plan: Plan, place: int) -> Plan | None:
    """Return a plan with a transfer and the next one of its kind sent together, if they can be."""
    first, second = plan.transfers[place : place + 2]
    room = problem.room("sharded")
    if first.kind != second.kind or (
        room is not None and first.size_bytes + second.size_bytes > room
    ):
        return None
    parts = joined(first.parts, second.parts)
    if parts is None:
        return None
    both = Transfer(first.kind, parts, max(first.not_before_ns, second.not_before_ns))
    transfers = (*plan.transfers[:place], both, *plan.transfers[place + 2 :])
    return settled(replace(plan, transfers=transfers), way)


def _raised(way: Way, charged: int, factor: Fraction = Fraction(1)) -> Way:
    """Return a way whose halves cost a factor more, and start later."""
    later = partial(scaled_cost, startup=factor, rate=factor, extra_ns=charged, rounding=ceil)

    def raised(option: Synchronisation) -> Synchronisation:
        half = later(option.half)
        if isinstance(half, AffineCost):
            return replace(option, half=half, whole=None)
        gather = None if option.gather is None else later(option.gather)
        return replace(option, half=half, gather=gather)

    if isinstance(way, Mixture):
        return replace(way, options=tuple(map(raised, way.options)))
    return raised(way)
