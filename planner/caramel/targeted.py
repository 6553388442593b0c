"""Plans under the rules of a target: how its buckets leave, its default, and what breaks a rule.

Problem: given how many parameters each bucket has, when does the target send it? And is a plan one
that the target can be told?

Method: the rules are data (`planner.targets`). Under them a plan is its buckets: the order of the
parameters, when each bucket leaves, and the barrier follow. So a plan keeps the rules exactly if it
is the plan that the target makes of the same buckets.

Guarantee: exact without interference. With it, cycles are those without.
Complexity: O(n log n), after that of the op orders. Source: see each rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from planner.bucketing import ddp_buckets, fitting_buckets
from planner.caramel.baselines import horovod, ready_order, unordered, whole
from planner.caramel.evaluation import plan_heads
from planner.caramel.one_size import sizes_that_make
from planner.caramel.problem import Group, Plan, Problem
from planner.costs import AffineCost, DepthCost, TableCost
from planner.deadline import NEVER, Deadline
from planner.targets import Target

__all__ = [
    "Lane",
    "broken_rule",
    "cost_of",
    "default_counts",
    "in_cycles",
    "lane_of",
    "plan_of_buckets",
]


@dataclass(frozen=True, slots=True)
class Lane:
    """What a target knows of a problem: its parameters in order, and when each is ready.

    Attributes
    ----------
    plan : Plan
        One without transfers: nothing enforces an op order.
    order : tuple of int
        Parameters in the order in which they fill buckets.
    ready : tuple of int
        When each of them is ready on the last worker.
    sizes : tuple of int
        Bytes of each of them.
    """

    plan: Plan
    order: tuple[int, ...]
    ready: tuple[int, ...]
    sizes: tuple[int, ...]


def lane_of(problem: Problem, target: Target, deadline: Deadline = NEVER) -> Lane:
    """Return what a target knows of a problem.

    Raises
    ------
    NotApplicableError
        If there is no time to draw the workers' op orders.
    """
    plan = unordered(problem, deadline)
    heads = plan_heads(problem.graph, plan)
    if target.order == "reversed":
        order = list(range(len(heads)))[::-1]
    elif target.order == "ready":
        order = ready_order(heads)
    else:
        first = Plan((), plan.backward_orders[:1], plan.forward_order)
        order = ready_order(plan_heads(problem.graph, first))
    sizes = problem.windows.sizes
    return Lane(plan, tuple(order), tuple(heads[j] for j in order), tuple(sizes[j] for j in order))


def cost_of(problem: Problem) -> AffineCost | TableCost:
    """Return what a transfer costs a library that chooses no depth."""
    cost = problem.cost
    return cost.at_depth(1) if isinstance(cost, DepthCost) else cost


def plan_of_buckets(problem: Problem, target: Target, lane: Lane, counts: Sequence[int]) -> Plan:
    """Return what a target makes of buckets.

    Parameters
    ----------
    problem, target : Problem, Target
        What is planned, and by whose rules.
    lane : Lane
        Theirs.
    counts : sequence of int
        Number of parameters in each bucket, in the order of the lane.
    """
    spans = list(pairwise(accumulate(counts, initial=0)))
    groups = [whole(problem, lane.order[start:stop]) for start, stop in spans]
    heads = [max(lane.ready[start:stop]) for start, stop in spans]
    if target.order == "reversed":  # each leaves when it is complete
        leaving = sorted(range(len(groups)), key=lambda place: (heads[place], place))
        groups = [groups[place] for place in leaving]
    elif target.cycle_ns:
        groups = in_cycles(problem, target.cycle_ns, groups, plan_heads(problem.graph, lane.plan))
    return replace(lane.plan, groups=tuple(groups), barrier=True, late=target.leaves_late)


def in_cycles(
    problem: Problem, cycle_ns: int, groups: Sequence[Group], heads: Sequence[int]
) -> list[Group]:
    """Return groups in the order, and at the times, in which cycles find them complete.

    Cycles are those of `planner.caramel.baselines.horovod`.

    Parameters
    ----------
    problem : Problem
        Their problem.
    cycle_ns : int
        Time from one cycle to the next, if transfers do not take longer.
    groups : sequence of Group
        The groups.
    heads : sequence of int
        When each parameter's gradient is ready.
    """
    cost, tick, free = cost_of(problem), 0, 0
    complete = [max(heads[part.parameter] for part in group.parts) for group in groups]
    timed = []
    for place in sorted(range(len(groups)), key=complete.__getitem__):
        if complete[place] > tick:  # the next cycle, then those that find nothing
            tick = max(tick + cycle_ns, free) if free > tick else tick
            tick += max(-(-(complete[place] - tick) // cycle_ns), 0) * cycle_ns
            free = tick
        free += cost.cost_ns(groups[place].size_bytes)
        timed.append(replace(groups[place], not_before_ns=tick))
    return timed


def default_counts(problem: Problem, target: Target, lane: Lane, deadline: Deadline) -> list[int]:
    """Return the buckets that a target makes if nobody tells it anything."""
    first, limit = target.limits(problem.workers, problem.element_bytes)
    if target.cycle_ns:
        plan = horovod(problem, deadline, target.cycle_ns, limit).plan
        assert plan is not None
        return [len(group.parts) for group in plan.groups]
    if target.buckets == "fitting":
        return fitting_buckets(lane.sizes, limit)
    return ddp_buckets(lane.sizes, first, limit)


def broken_rule(problem: Problem, target: Target, plan: Plan) -> str | None:
    """Return which rule of a target a plan of the problem breaks; None if it keeps to all."""
    if not plan.barrier:
        return f"{target.title} waits for all transfers before the next forward pass"
    if plan.traffic != 1 or any(group.depth != 1 for group in plan.groups):
        return f"{target.title} sums up by all-reduces, each in one piece"
    sizes = problem.windows.sizes
    parts = [part for group in plan.groups for part in group.parts]
    if any(part != (part.parameter, 0, sizes[part.parameter]) for part in parts):
        return f"{target.title} sends whole parameters"
    lane = lane_of(problem, target)
    place = {j: number for number, j in enumerate(lane.order)}
    buckets = [sorted(place[part.parameter] for part in group.parts) for group in plan.groups]
    buckets.sort()
    if [number for bucket in buckets for number in bucket] != list(range(len(place))):
        return f"{target.title} fills buckets in an order of its own"
    counts = [len(bucket) for bucket in buckets]
    if target.buckets != "any" and sizes_that_make(lane.sizes, counts, target.buckets) is None:
        return f"{target.title} has one size for all buckets"
    made = plan_of_buckets(problem, target, lane, counts)
    if plan.late != made.late or not _same(plan, made):
        return f"{target.title} sends buckets at other times, or in another order"
    if (plan.backward_orders, plan.forward_order) != (made.backward_orders, made.forward_order):
        return f"{target.title} enforces no order of the computation"
    return None


def _same(first: Plan, second: Plan) -> bool:
    """Return whether two plans send the same at the same times."""

    def sent(plan: Plan) -> list[object]:
        return [
            (group.parts[0] if plan.late else 0, frozenset(group.parts), group.not_before_ns)
            for group in plan.groups
        ]

    return sent(first) == sent(second)
