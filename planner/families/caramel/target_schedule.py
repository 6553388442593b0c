"""Plans under the rules of an export target: its buckets, its default, and rule violations.

Problem: when does the target send buckets with given numbers of parameters, and can the target be
given a plan? Method: the rules are data (`planner.solving.targets`). A plan under them is
determined by its buckets: order, start times and barrier follow. So a plan keeps the rules exactly
if the target makes it of the same buckets. Guarantee: exact without contention. Under contention,
cycles are those without it. Complexity: O(n log n), after that of the op orders. Source: see each
rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from planner.families.caramel.baselines import horovod, in_cycles, ready_order, unordered, whole
from planner.families.caramel.buckets import sizes_that_make
from planner.families.caramel.evaluation import lasting_ns, plan_heads
from planner.families.caramel.problem import Plan, Problem
from planner.model.errors import NotApplicableError
from planner.solving.bucketing import ddp_buckets, fitting_buckets, nearest_size
from planner.solving.deadline import NEVER, Deadline, TimeUpError
from planner.solving.targets import TARGETS, Exported, Target
from planner.solving.transfers import Transfer


@dataclass(frozen=True, slots=True)
class Lane:
    """A target's view of a problem: its parameters in bucket order.

    `plan` has no transfers, and enforces no op order; `ready` is when the last worker has each
    gradient (ns); `sizes` in bytes.
    """

    plan: Plan
    order: tuple[int, ...]
    ready: tuple[int, ...]
    sizes: tuple[int, ...]


def lane_of(problem: Problem, target: Target, deadline: Deadline = NEVER) -> Lane:
    """Return a target's view of a problem.

    Raises `NotApplicableError` if there is no time to draw the workers' op orders.
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


def plan_of_buckets(problem: Problem, target: Target, lane: Lane, counts: Sequence[int]) -> Plan:
    """Return the plan that a target makes of buckets with `counts` parameters."""
    spans = list(pairwise(accumulate(counts, initial=0)))
    groups = [whole(problem, lane.order[start:stop]) for start, stop in spans]
    heads = [max(lane.ready[start:stop]) for start, stop in spans]
    if target.order == "reversed":  # each leaves when it is complete
        leaving = sorted(range(len(groups)), key=lambda place: (heads[place], place))
        groups = [groups[place] for place in leaving]
    elif target.cycle_ns:
        groups = in_cycles(problem, target.cycle_ns, groups, plan_heads(problem.graph, lane.plan))
    return replace(lane.plan, groups=tuple(groups), barrier=True, late=target.leaves_late)


def default_plan(problem: Problem, target: Target, deadline: Deadline) -> Plan:
    """Return the plan of the target's default buckets."""
    lane = lane_of(problem, target, deadline)
    first, limit = target.limits(problem.workers, problem.element_bytes)
    if target.cycle_ns:
        plan = horovod(problem, deadline, target.cycle_ns, limit).plan
        assert plan is not None
        counts = [len(group.parts) for group in plan.groups]
    elif target.buckets == "fitting":
        counts = fitting_buckets(lane.sizes, limit)
    else:
        counts = ddp_buckets(lane.sizes, first, limit)
    return plan_of_buckets(problem, target, lane, counts)


def broken_rule(problem: Problem, target: Target, plan: Plan) -> str | None:
    """Return the first target rule that the plan violates, or None."""
    if not plan.barrier:
        return f"{target.title} waits for all transfers before the next forward pass"
    if plan.traffic != 1 or any(group.depth != 1 for group in plan.groups):
        return f"{target.title} sums up by all-reduces, each in one piece"
    if _cuts(problem, plan):
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


def _cuts(problem: Problem, plan: Plan) -> bool:
    """Return whether a plan cuts any parameter."""
    sizes = problem.windows.sizes
    parts = (part for group in plan.groups for part in group.parts)
    return any(part != (part.parameter, 0, sizes[part.parameter]) for part in parts)


def _same(first: Plan, second: Plan) -> bool:
    """Return whether two plans send the same groups at the same times."""

    def sent(plan: Plan) -> list[object]:
        return [
            (group.parts[0] if plan.late else 0, frozenset(group.parts), group.not_before_ns)
            for group in plan.groups
        ]

    return sent(first) == sent(second)


# ---
# Price a plan under the rules of each export target.
#
# Problem: a target sends the plan's groups by its own rules. Compute the iteration time, and that
# of the target's default. Method: the target enforces no op order and waits for all transfers. If
# it accepts any groups, it sends the plan's, in the plan's order or, with cycles, as they are
# complete. If one size makes its buckets, the nearest size is used
# (`planner.solving.bucketing.nearest_size`). Guarantee: exact for the cost and the op orders of the
# problem. Complexity: O(groups · n) per target. Source: own; the rules are those of
# `planner.solving.targets`.

MOST_LOOKED_AT = 2 * 10**6
"""Largest product of groups and parameters for which the nearest size is searched: seconds."""


def exported(problem: Problem, plan: Plan, deadline: Deadline) -> dict[str, Exported]:
    """Return the price of a plan under the rules of each target, as far as the time suffices."""
    prices = {}
    for name, target in TARGETS.items():
        try:
            prices[name] = exported_to(problem, target, plan, deadline)
        except (NotApplicableError, TimeUpError):  # drawing one op order per worker takes too long
            break
    return prices


def exported_to(problem: Problem, target: Target, plan: Plan, deadline: Deadline) -> Exported:
    """Return the price of a plan under a target's rules.

    Raises `NotApplicableError` or `TimeUpError` if there is no time to draw the workers' op orders.
    """
    free = replace(problem, target=None)
    default = lasting_ns(free, default_plan(free, target, deadline))
    lane = lane_of(free, target, deadline)
    if _cuts(problem, plan):
        return Exported(None, default, f"{target.title} sends whole parameters, the plan cuts some")
    if plan.traffic != 1 or any(group.depth != 1 for group in plan.groups):
        what = "parameter servers" if plan.traffic != 1 else "chunks"
        return Exported(None, default, f"{target.title} cannot be told of {what}")
    if target.buckets != "any" and len(plan.groups) * len(lane.sizes) > MOST_LOOKED_AT:
        why = f"the plan has too many groups ({len(plan.groups)}) to find the nearest size"
        return Exported(None, default, f"{target.title} has one size for all buckets, and {why}")
    sent = _sent(free, target, lane, plan.groups)
    return Exported(lasting_ns(free, sent), default)


def _sent(problem: Problem, target: Target, lane: Lane, groups: Sequence[Transfer]) -> Plan:
    """Return the plan that a target makes of groups of whole parameters."""
    if target.buckets != "any":
        named = [[part.parameter for part in group.parts] for group in groups]
        rule = fitting_buckets if target.buckets == "fitting" else _filled
        _, counts = nearest_size(lane.order, lane.sizes, named, rule)
        return plan_of_buckets(problem, target, lane, counts)
    plain = [Transfer(group.parts) for group in groups]
    if target.cycle_ns:
        heads = plan_heads(problem.graph, lane.plan)
        plain = in_cycles(problem, target.cycle_ns, plain, heads)
    return replace(lane.plan, groups=tuple(plain), barrier=True)


def _filled(sizes: Sequence[int], limit: int) -> list[int]:
    return ddp_buckets(sizes, limit, limit)
