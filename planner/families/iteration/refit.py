"""Warm start: adapt an old plan to changed numbers, within milliseconds.

Method: parameters of another size are cut at the same shares. All-reduces are improved as in
`planner.families.caramel.search`; pushes and pulls compete with iBatch's batches both ways
(`planner.families.iteration.baselines`). Each transfer takes the algorithm that suits its size now,
of those the old plan chose from. Transfers over the limit are cut
(`planner.families.iteration.transfer_limit`), unless there would be none or too many. Guarantee:
never worse than the old transfers in the old order; mode and algorithms stay. Complexity: that of
`planner.families.caramel.search`. Source: own.
"""

from dataclasses import replace

from planner.families.caramel.pricing import LoadPricer, groups_of, loads_of
from planner.families.caramel.problem import OpOrder
from planner.families.caramel.problem import Plan as GradientPlan
from planner.families.caramel.search import improved, resized
from planner.families.caramel.windows import windows
from planner.families.iteration.baselines import both_ways, enforced
from planner.families.iteration.evaluation import lasting
from planner.families.iteration.plan import Plan, Way, from_gradients
from planner.families.iteration.problem import Problem
from planner.families.iteration.transfer_limit import capped, settled, too_many, too_small
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome


def adapt(problem: Problem, plan: Plan) -> Plan:
    """Adapt an old plan to the sizes of the problem's parameters.

    If an algorithm is no longer available, transfers take those that suit their sizes, of the
    plan's algorithms. Raises `InvalidPlanError` if the plan sends bytes that no parameter can have.
    """
    kinds = {}
    for pull, sizes in ((False, problem.pushed), (True, problem.pulled)):
        parts = [transfer.parts for transfer in plan.transfers if (transfer.kind == "pull") is pull]
        kinds[pull] = iter(resized(parts, sizes, problem.element_bytes))
    made = (
        replace(transfer, parts=next(kinds[transfer.kind == "pull"])) for transfer in plan.transfers
    )
    way = _way_of(problem, plan)
    plan = replace(plan, transfers=tuple(transfer for transfer in made if transfer.parts))
    known = all(plan.how(transfer) in problem.costs for transfer in plan.transfers)
    return plan if known or way is None else settled(plan, way)


def refit(problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
    """Return an adapted plan, cut to the transfer limit and improved."""
    way = _way_of(problem, plan)
    if way is None:
        return Outcome(plan)
    small = too_small(problem, plan.mode) or too_many(problem, plan.mode)
    if small is not None:  # cutting would make no transfer, or too many
        return Outcome(None, infeasibility=small)
    if plan.mode == "replicated":
        better = _gradients(problem, plan, way, deadline)
        return Outcome(settled(capped(problem, better or plan), way))
    batches = both_ways(problem, way, problem.room("sharded"))
    plans = plan, enforced(problem, way.algorithm, batches)
    fitting = [settled(capped(problem, made), way) for made in plans]
    return Outcome(min(fitting, key=lambda made: lasting(problem, made)(problem.costs)))


def _way_of(problem: Problem, plan: Plan) -> Way | None:
    """Return the algorithms that an old plan chose from, or None if the plan must not change."""
    free = len(plan.backward_orders) == 1 and not (plan.barrier or plan.late)
    fixed = problem.target is not None or not problem.interference.is_none
    if fixed or not free:
        return None
    return next((way for way in problem.options if way.algorithm == plan.way), None)


def _gradients(problem: Problem, plan: Plan, way: Way, deadline: Deadline) -> Plan | None:
    """Return better all-reduces in the same op order, or None."""
    order = OpOrder(plan.backward_orders[0], plan.forward_order)
    old = loads_of(plan.as_gradients)
    pricer = LoadPricer(windows(problem.graph, *order), way.all_reduce)
    element = problem.element_bytes
    loads, _ = improved(pricer, old, way.all_reduce, element, deadline)
    if pricer.iteration_ns(loads) >= pricer.iteration_ns(old):
        return None
    groups = groups_of(loads, problem.pushed, element, way.all_reduce)
    made = GradientPlan(groups, plan.backward_orders, plan.forward_order)
    return from_gradients(way.algorithm, made)
