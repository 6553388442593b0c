"""Plans under the rules of an export target: its default, its best plan, prices of other plans.

Problem: of all plans that keep to a target's rules, find the shortest. The rules are data
(`planner.solving.targets`). The buckets determine the plan: order, start times and barrier follow.
So a plan keeps to the rules exactly if the target makes the same plan of the plan's buckets.
Method (`planner.families.caramel.buckets`): if a bucket may be any consecutive parameters, take the
best buckets; if one size makes all buckets, try all sizes. With cycles, take the best of three: the
best buckets without cycles, the best buckets for gradients ready at the next cycle, the default.
The default is always a candidate and wins if it is faster. Guarantee: never slower than the
default. Optimal without contention and cycles; with cycles, the bound is the one without cycles.
With more than `MOST_BUCKETS`, the bound is that of any consecutive buckets. Complexity: that of the
buckets, after O(n log n) and the op orders. Source: own; see each rule.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise

from planner.families.caramel.baselines import (
    cost_of,
    horovod,
    in_cycles,
    ready_order,
    unordered,
    whole,
)
from planner.families.caramel.buckets import MOST_BUCKETS, best_buckets, every_size, sizes_that_make
from planner.families.caramel.evaluation import lasting_ns, plan_heads
from planner.families.caramel.problem import Plan, Problem
from planner.model.errors import NotApplicableError
from planner.solving.bucketing import ddp_buckets, fitting_buckets, nearest_size
from planner.solving.deadline import NEVER, Deadline, TimeUpError
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, named
from planner.solving.targets import TARGETS, Exported, Target
from planner.solving.tie_break import NOMINAL, Step, delayed_makespan
from planner.solving.transfers import Transfer


@dataclass(frozen=True, slots=True)
class TargetView:
    """A target's view of a problem: its parameters in bucket order.

    `plan` has no transfers, and enforces no op order; `ready` is when the last worker has each
    gradient (ns); `sizes` in bytes.
    """

    plan: Plan
    order: tuple[int, ...]
    ready: tuple[int, ...]
    sizes: tuple[int, ...]


def target_view(problem: Problem, target: Target, deadline: Deadline = NEVER) -> TargetView:
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
    return TargetView(
        plan, tuple(order), tuple(heads[j] for j in order), tuple(sizes[j] for j in order)
    )


def plan_of_buckets(
    problem: Problem, target: Target, view: TargetView, counts: Sequence[int]
) -> Plan:
    """Return the plan that a target makes of buckets with `counts` parameters."""
    spans = list(pairwise(accumulate(counts, initial=0)))
    groups = [whole(problem, view.order[start:stop]) for start, stop in spans]
    heads = [max(view.ready[start:stop]) for start, stop in spans]
    if target.order == "reversed":  # each leaves when it is complete
        leaving = sorted(range(len(groups)), key=lambda place: (heads[place], place))
        groups = [groups[place] for place in leaving]
    elif target.cycle_ns:
        groups = in_cycles(problem, target.cycle_ns, groups, plan_heads(problem.graph, view.plan))
    return replace(view.plan, groups=tuple(groups), barrier=True, late=target.leaves_late)


def default_plan(problem: Problem, target: Target, deadline: Deadline) -> Plan:
    """Return the plan of the target's default buckets."""
    view = target_view(problem, target, deadline)
    first, limit = target.limits(problem.workers, problem.element_bytes)
    if target.cycle_ns:
        plan = horovod(problem, deadline, target.cycle_ns, limit).plan
        assert plan is not None
        counts = [len(group.parts) for group in plan.groups]
    elif target.buckets == "fitting":
        counts = fitting_buckets(view.sizes, limit)
    else:
        counts = ddp_buckets(view.sizes, first, limit)
    return plan_of_buckets(problem, target, view, counts)


def broken_rule(problem: Problem, target: Target, plan: Plan) -> str | None:
    """Return the first target rule that the plan violates, or None."""
    if not plan.barrier:
        return f"{target.title} waits for all transfers before the next forward pass"
    if plan.traffic != 1 or any(group.depth != 1 for group in plan.groups):
        return f"{target.title} sums up by all-reduces, each in one piece"
    if _cuts(problem, plan):
        return f"{target.title} sends whole parameters"
    unenforced = f"{target.title} enforces no order of the computation"
    # This check comes before any order is drawn, because drawing takes long for many workers.
    if len(plan.backward_orders) != (problem.workers if problem.op_order is None else 1):
        return unenforced
    view = target_view(problem, target)
    place = {j: number for number, j in enumerate(view.order)}
    buckets = [sorted(place[part.parameter] for part in group.parts) for group in plan.groups]
    buckets.sort()
    if [number for bucket in buckets for number in bucket] != list(range(len(place))):
        return f"{target.title} fills buckets in an order of its own"
    counts = [len(bucket) for bucket in buckets]
    if target.buckets != "any" and sizes_that_make(view.sizes, counts, target.buckets) is None:
        return f"{target.title} has one size for all buckets"
    made = plan_of_buckets(problem, target, view, counts)
    if plan.late != made.late or not _same(plan, made):
        return f"{target.title} sends buckets at other times, or in another order"
    if (plan.backward_orders, plan.forward_order) != (made.backward_orders, made.forward_order):
        return unenforced
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
# it accepts any groups, it sends the plan's groups in the plan's order or, with cycles, as they
# become complete. If one size makes its buckets, the nearest size is used
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
            prices[name] = price_under_target(problem, target, plan, deadline)
        except (NotApplicableError, TimeUpError):  # drawing one op order per worker takes too long
            break
    return prices


def price_under_target(
    problem: Problem, target: Target, plan: Plan, deadline: Deadline
) -> Exported:
    """Return the price of a plan under a target's rules.

    Raises `NotApplicableError` or `TimeUpError` if there is no time to draw the workers' op orders.
    """
    free = replace(problem, target=None)
    default = lasting_ns(free, default_plan(free, target, deadline))
    view = target_view(free, target, deadline)
    if _cuts(problem, plan):
        return Exported(None, default, f"{target.title} sends whole parameters, the plan cuts some")
    if plan.traffic != 1 or any(group.depth != 1 for group in plan.groups):
        what = "parameter servers" if plan.traffic != 1 else "chunks"
        return Exported(None, default, f"{target.title} cannot be told of {what}")
    if target.buckets != "any" and len(plan.groups) * len(view.sizes) > MOST_LOOKED_AT:
        why = f"the plan has too many groups ({len(plan.groups)}) to find the nearest size"
        return Exported(None, default, f"{target.title} has one size for all buckets, and {why}")
    sent = _sent(free, target, view, plan.groups)
    return Exported(lasting_ns(free, sent), default)


def _sent(problem: Problem, target: Target, view: TargetView, groups: Sequence[Transfer]) -> Plan:
    """Return the plan that a target makes of groups of whole parameters."""
    if target.buckets != "any":
        named = [[part.parameter for part in group.parts] for group in groups]
        filling = target.buckets == "filled"
        rule = (lambda sizes, most: ddp_buckets(sizes, most, most)) if filling else fitting_buckets
        _, counts = nearest_size(view.order, view.sizes, named, rule)
        return plan_of_buckets(problem, target, view, counts)
    plain = [Transfer(group.parts) for group in groups]
    if target.cycle_ns:
        heads = plan_heads(problem.graph, view.plan)
        plain = in_cycles(problem, target.cycle_ns, plain, heads)
    return replace(view.plan, groups=tuple(plain), barrier=True)


BUCKETS = "buckets"
"""Name of the method."""


def planned(problem: Problem, deadline: Deadline, most_bytes: int | None = None) -> Outcome[Plan]:
    """Return the best plan under the rules of the problem's target, or its default at the deadline.

    With `most_bytes` no bucket of several parameters is larger; the default is not a candidate
    then.
    """
    target = _target(problem)
    view = target_view(problem, target, deadline)
    default = default_plan(problem, target, deadline)
    plans: list[Plan] = []
    bound = None
    with suppress(TimeUpError):
        candidates, bound = _best(problem, target, view, deadline, most_bytes)
        plans = [plan_of_buckets(problem, target, view, counts) for counts in candidates]
    timed_out = not plans
    if most_bytes is None or timed_out:
        plans.append(default)
    best = min(plans, key=lambda plan: lasting_ns(problem, plan))
    if not problem.interference.is_none:
        bound = None
    return Outcome(best, bound, timed_out)


def least_ns(problem: Problem, deadline: Deadline) -> int | None:
    """Return the lower bound over all plans under the target's rules, or None if the time is up."""
    target = _target(problem)
    try:
        return _best(problem, target, target_view(problem, target, deadline), deadline)[1]
    except TimeUpError:
        return None


def within(target: Target) -> dict[str, AnyMethod[Problem, Plan]]:
    """Return the methods of a problem with a target: the best plan, and the target's default."""

    def default(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        return Outcome(default_plan(problem, target, deadline))

    return {"auto": named(BUCKETS, planned), BUCKETS: planned, target.name: default}


def _target(problem: Problem) -> Target:
    if problem.target is None:
        raise NotApplicableError("target", f"missing: {BUCKETS} plans under the rules of one")
    return problem.target


def _best(
    problem: Problem,
    target: Target,
    view: TargetView,
    deadline: Deadline,
    most_bytes: int | None = None,
) -> tuple[list[list[int]], int]:
    """Return candidates, as numbers of parameters per bucket, and the lower bound of all plans.

    Contention is ignored.
    """
    known = problem.windows
    cost = cost_of(problem)
    until = known.backward_ns
    end, counts = best_buckets(view.ready, view.sizes, cost, deadline, most_bytes, until)
    bound = max(end, until) + known.forward_ns
    if target.buckets == "any":
        if not target.cycle_ns:
            return [counts], bound
        cycle = target.cycle_ns
        seen = [-(-ready // cycle) * cycle for ready in view.ready]
        caught = best_buckets(seen, view.sizes, cost, deadline, most_bytes, until)[1]
        return [counts, caught], bound
    best, least, listed = [1] * len(view.sizes), -1, 0
    lasting = _lasting(problem, target, view)
    for _, counts in every_size(view.sizes, target.buckets):
        deadline.check()
        listed += len(counts)
        if most_bytes is not None and _largest(view.sizes, counts) > most_bytes:
            continue
        lasts = lasting(counts)
        if least < 0 or lasts < least:
            best, least = counts, lasts
    return [best], least if least >= 0 and listed < MOST_BUCKETS else bound


def _largest(sizes: Sequence[int], counts: Sequence[int]) -> int:
    """Return the size of the largest bucket of several parameters."""
    spans = pairwise(accumulate(counts, initial=0))
    return max((sum(sizes[a:b]) for a, b in spans if b - a > 1), default=0)


def _lasting(problem: Problem, target: Target, view: TargetView) -> Callable[[Sequence[int]], int]:
    """Return a function from buckets to the iteration time, equal to `evaluate` of their plan.

    It is called for thousands of buckets.
    """
    known, price = problem.windows, cache(cost_of(problem).cost_ns)
    sent = list(accumulate(view.sizes, initial=0))
    reached = [*accumulate(view.ready, max), known.backward_ns]

    def lasts(counts: Sequence[int]) -> int:
        spans = list(pairwise(accumulate(counts, initial=0)))
        lasting = [price(sent[stop] - sent[start]) for start, stop in spans]
        if not target.leaves_late:
            heads = [max(view.ready[start:stop]) for start, stop in spans]
            leaving = sorted(range(len(spans)), key=heads.__getitem__)
            steps = (Step(heads[place], lasting[place], known.forward_ns) for place in leaving)
            return delayed_makespan(NOMINAL, steps, known.compute_ns)
        leaves = before = 0
        for lasted, (_, stop) in zip([0, *lasting], spans, strict=False):
            leaves += max(reached[stop] - before, lasted)
            before = reached[stop]
        return leaves + lasting[-1] + known.forward_ns

    return lasts
