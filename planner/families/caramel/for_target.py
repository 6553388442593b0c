"""The best plan under the rules of an export target.

Problem: of all plans that keep to a target's rules, find the shortest. Method:
`planner.families.caramel.buckets` if buckets are any consecutive parameters; all sizes
(`planner.families.caramel.buckets`) if one size makes all buckets. With cycles: the best buckets
without cycles, the best ones for gradients ready at the next cycle, or the default. The target's
default is always a candidate and wins if it is faster. Guarantee: never slower than the default.
Optimal without contention and cycles; with cycles the bound is that without them. With more than
`MOST_BUCKETS` the bound is that of any buckets. Complexity: that of the two modules.
Source: own.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise

from planner.families.caramel.baselines import cost_of
from planner.families.caramel.buckets import MOST_BUCKETS, best_buckets, every_size
from planner.families.caramel.evaluation import lasting_ns
from planner.families.caramel.problem import Plan, Problem
from planner.families.caramel.target_schedule import (
    Lane,
    broken_rule,
    default_plan,
    lane_of,
    plan_of_buckets,
)
from planner.model.errors import NotApplicableError
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, named
from planner.solving.robustness import NOMINAL, Step, end_under
from planner.solving.targets import Target

BUCKETS = "buckets"
"""Name of the method."""

BEHIND_BARRIERS = ("ddp", "horovod", "mg_wfbp", "layer_by_layer")
"""Methods of the family whose transfers all end before the forward pass."""


def planned(problem: Problem, deadline: Deadline, most_bytes: int | None = None) -> Outcome[Plan]:
    """Return the best plan under the rules of the problem's target, or its default at the deadline.

    With `most_bytes` no bucket of several parameters is larger; the default is not a candidate
    then.
    """
    target = _target(problem)
    lane = lane_of(problem, target, deadline)
    default = default_plan(problem, target, deadline)
    plans: list[Plan] = []
    bound = None
    with suppress(TimeUpError):
        candidates, bound = _best(problem, target, lane, deadline, most_bytes)
        plans = [plan_of_buckets(problem, target, lane, counts) for counts in candidates]
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
        return _best(problem, target, lane_of(problem, target, deadline), deadline)[1]
    except TimeUpError:
        return None


def within(
    methods: Mapping[str, AnyMethod[Problem, Plan]], target: Target
) -> dict[str, AnyMethod[Problem, Plan]]:
    """Return the methods of a problem with a target.

    They are the best plan, the target's default, and the family's methods, which raise if their
    plan breaks a rule.
    """

    def kept(name: str, method: AnyMethod[Problem, Plan]) -> AnyMethod[Problem, Plan]:
        def run(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
            if name not in BEHIND_BARRIERS:
                why = "waits for all transfers before the next forward pass"
                raise NotApplicableError("method", f"{target.title} {why}, {name} does not")
            outcome = method(replace(problem, target=None), deadline)
            assert outcome.plan is not None
            broken = broken_rule(problem, target, outcome.plan)
            if broken is not None:
                raise NotApplicableError("method", f"{broken}, unlike {name}")
            return Outcome(outcome.plan, timed_out=outcome.timed_out)

        return run

    def default(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        return Outcome(default_plan(problem, target, deadline))

    own = {"auto": named(BUCKETS, planned), BUCKETS: planned, target.name: default}
    return own | {name: kept(name, run) for name, run in methods.items() if name not in own}


def _target(problem: Problem) -> Target:
    if problem.target is None:
        raise NotApplicableError("target", f"missing: {BUCKETS} plans under the rules of one")
    return problem.target


def _best(
    problem: Problem,
    target: Target,
    lane: Lane,
    deadline: Deadline,
    most_bytes: int | None = None,
) -> tuple[list[list[int]], int]:
    """Return candidates, as numbers of parameters per bucket, and the lower bound of all plans.

    Contention does not count.
    """
    known = problem.windows
    cost = cost_of(problem)
    until = known.backward_ns
    end, counts = best_buckets(lane.ready, lane.sizes, cost, deadline, most_bytes, until)
    bound = max(end, until) + known.forward_ns
    if target.buckets == "any":
        if not target.cycle_ns:
            return [counts], bound
        cycle = target.cycle_ns
        seen = [-(-ready // cycle) * cycle for ready in lane.ready]
        caught = best_buckets(seen, lane.sizes, cost, deadline, most_bytes, until)[1]
        return [counts, caught], bound
    best, least, listed = [1] * len(lane.sizes), -1, 0
    lasting = _lasting(problem, target, lane)
    for _, counts in every_size(lane.sizes, target.buckets):
        deadline.check()
        listed += len(counts)
        if most_bytes is not None and _largest(lane.sizes, counts) > most_bytes:
            continue
        lasts = lasting(counts)
        if least < 0 or lasts < least:
            best, least = counts, lasts
    return [best], least if least >= 0 and listed < MOST_BUCKETS else bound


def _largest(sizes: Sequence[int], counts: Sequence[int]) -> int:
    """Return the size of the largest bucket of several parameters."""
    spans = pairwise(accumulate(counts, initial=0))
    return max((sum(sizes[a:b]) for a, b in spans if b - a > 1), default=0)


def _lasting(problem: Problem, target: Target, lane: Lane) -> Callable[[Sequence[int]], int]:
    """Return a function from buckets to the iteration time, equal to `evaluate` of their plan.

    It is called for thousands of buckets.
    """
    known, price = problem.windows, cache(cost_of(problem).cost_ns)
    sent = list(accumulate(lane.sizes, initial=0))
    reached = [*accumulate(lane.ready, max), known.backward_ns]

    def lasts(counts: Sequence[int]) -> int:
        spans = list(pairwise(accumulate(counts, initial=0)))
        lasting = [price(sent[stop] - sent[start]) for start, stop in spans]
        if not target.leaves_late:
            heads = [max(lane.ready[start:stop]) for start, stop in spans]
            leaving = sorted(range(len(spans)), key=heads.__getitem__)
            steps = (Step(heads[place], lasting[place], known.forward_ns) for place in leaving)
            return end_under(NOMINAL, steps, known.compute_ns)
        leaves = before = 0
        for lasted, (_, stop) in zip([0, *lasting], spans, strict=False):
            leaves += max(reached[stop] - before, lasted)
            before = reached[stop]
        return leaves + lasting[-1] + known.forward_ns

    return lasts
