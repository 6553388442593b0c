"""Price a plan under the rules of each export target.

Problem: a target sends the plan's groups by its own rules. Compute the iteration time, and that of
the target's default.
Method: the target enforces no op order and waits for all transfers. If it accepts any groups, it
sends the plan's, in the plan's order or, with cycles, as they are complete. If one size makes its
buckets, the nearest size is used (`planner.solving.bucketing.nearest_size`).
Guarantee: exact for the cost and the op orders of the problem.
Complexity: O(groups · n) per target.
Source: own; the rules are those of `planner.solving.targets`.
"""

from collections.abc import Sequence
from dataclasses import replace

from planner.families.caramel.evaluation import lasting_ns, plan_heads
from planner.families.caramel.problem import Plan, Problem
from planner.families.caramel.target_schedule import (
    Lane,
    default_counts,
    in_cycles,
    lane_of,
    plan_of_buckets,
)
from planner.model.errors import NotApplicableError
from planner.solving.bucketing import ddp_buckets, fitting_buckets, nearest_size
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.targets import TARGETS, Exported, Target
from planner.solving.transfers import Transfer

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
    lane = lane_of(free, target, deadline)
    counts = default_counts(free, target, lane, deadline)
    default = lasting_ns(free, plan_of_buckets(free, target, lane, counts))
    sizes = problem.windows.sizes
    parts = [part for group in plan.groups for part in group.parts]
    if any(part != (part.parameter, 0, sizes[part.parameter]) for part in parts):
        return Exported(None, default, f"{target.title} sends whole parameters, the plan cuts some")
    if plan.traffic != 1 or any(group.depth != 1 for group in plan.groups):
        what = "parameter servers" if plan.traffic != 1 else "chunks"
        return Exported(None, default, f"{target.title} cannot be told of {what}")
    if target.buckets != "any" and len(plan.groups) * len(sizes) > MOST_LOOKED_AT:
        why = f"the plan has too many groups ({len(plan.groups)}) to find the nearest size"
        return Exported(None, default, f"{target.title} has one size for all buckets, and {why}")
    sent = _sent(free, target, lane, plan.groups)
    return Exported(lasting_ns(free, sent), default)


def _sent(problem: Problem, target: Target, lane: Lane, groups: Sequence[Transfer]) -> Plan:
    """Return the plan that a target makes of groups of whole parameters."""
    if target.buckets != "any":
        named = [[part.parameter for part in group.parts] for group in groups]
        rule = fitting_buckets
        if target.buckets == "filled":

            def rule(sizes: Sequence[int], limit: int) -> list[int]:
                return ddp_buckets(sizes, limit, limit)

        _, counts = nearest_size(lane.order, lane.sizes, named, rule)
        return plan_of_buckets(problem, target, lane, counts)
    plain = [Transfer(group.parts) for group in groups]
    if target.cycle_ns:
        heads = plan_heads(problem.graph, lane.plan)
        plain = in_cycles(problem, target.cycle_ns, plain, heads)
    return replace(lane.plan, groups=tuple(plain), barrier=True)
