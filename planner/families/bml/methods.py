"""BML's methods by name: Algorithm 1, detours and trees around failures, and the best of them.

Problem: synchronise a gradient on a BCube, whole or damaged. Method: `auto` is `bml` without
failures; it is then optimal except for start-up costs and whole elements. With failures `auto` is
the faster of `detour` and `trees`; large networks try `trees` only if detours are far from the
bound. Guarantee: `lower_bound_ns` bounds every plan. Complexity: that of the modules it names.
Source: BML §4.3 (Algorithm 1); detours and trees are ours.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import accumulate
from math import isqrt
from typing import TypeAlias, TypeVar

from planner.families.bml.evaluation import both_ways, busiest_load, hops_of, time_ns
from planner.families.bml.packing import few_trees, pack
from planner.families.bml.problem import MAX_DAMAGED_NICS, Problem
from planner.families.bml.reroute import Damage, damage_of, detour
from planner.families.bml.schedule import FULL_WEIGHT, Schedule, slice_of
from planner.families.bml.trees import Plan, RootedTree, Tree, TreePlan, root_at_centre, trees_of
from planner.model.errors import NotApplicableError
from planner.solving.deadline import NEVER, Deadline, TimeUpError
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility

Method: TypeAlias = AnyMethod[Problem, Plan]

TREES_MAX_NICS = 400
"""Networks of up to this many NICs are re-planned by `auto` with trees too."""

FAR = Fraction(3, 2)
"""In larger networks too, if detours load the busiest NIC more than this factor times the bound."""

PACKED_MAX_NICS = 1024
"""Up to this many NICs trees are packed by a linear program, in some ten seconds at worst."""

FINISHING_S = 0.5
"""Seconds reserved before the time limit (at most half of it) to root and compare packed trees."""

FEW_TREES = 128
"""Number of greedy trees of equal share in larger networks."""

FEW_HOPS = 2**21
"""Fewer trees are made if they would have more hops than this in all."""


def _bml(problem: Problem, _: Deadline) -> Outcome[Plan]:
    if problem.failed:
        raise NotApplicableError("method", "bml is Algorithm 1, which knows no failures")
    return Outcome(Schedule(problem.bcube))


def _detour(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    damage = damage_of(problem, deadline)
    plan = detour(damage)
    if not plan.changed:
        return Outcome(plan)
    plans = [plan]
    if not deadline.passed:
        with suppress(TimeUpError):
            plans.append(balanced(plan, replace(damage, deadline=deadline)))
    plans = [with_best_rounds(problem, candidate, deadline) for candidate in dict.fromkeys(plans)]
    return Outcome(_fastest(problem, plans, damage.deadline), timed_out=deadline.passed)


def _trees(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    return _trees_until(problem, damage_of(problem, deadline), deadline)


def _trees_until(problem: Problem, damage: Damage, deadline: Deadline) -> Outcome[Plan]:
    """Return the best trees by the deadline; the first plan may take until `damage.deadline`."""
    if damage.bcube.nics > MAX_DAMAGED_NICS:  # `Problem` limits the size only with failures
        raise NotApplicableError(
            "method",
            f"trees takes networks of at most {MAX_DAMAGED_NICS} NICs, got {damage.bcube.nics}",
        )
    if damage.living == 1:
        (alone,) = set(range(damage.bcube.servers)) - damage.dead
        return Outcome(TreePlan(damage.bcube, (RootedTree(alone, ()),), (Fraction(1),)))
    left = deadline.remaining_s
    large = damage.bcube.nics > PACKED_MAX_NICS
    # To root, cut, check and price a large tree takes more than half as long as to find it.
    finishing = 0 if left is None else left / 2 if large else min(FINISHING_S, left / 2)
    searched = deadline.later(-finishing)
    if large:
        count = max(1, min(FEW_TREES, FEW_HOPS // damage.living))
        packing = few_trees(damage, count, searched)
    else:
        start: list[Tree] = []
        with suppress(NotApplicableError):  # detours may not apply
            start = trees_of(detour(damage), damage.deadline)
        packing = pack(damage, searched, start=start)
    rooted = tuple(root_at_centre(tree, damage.deadline) for tree in packing.trees)
    plan = with_best_rounds(problem, TreePlan(damage.bcube, rooted, packing.weights), deadline)
    return Outcome(plan, lower_bound_ns(problem, damage, packing.bound), packing.timed_out)


def _auto(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    if not problem.failed:
        return replace(_bml(problem, deadline), method="bml")
    damage = damage_of(problem, deadline)
    outcomes: list[Outcome[Plan]] = []
    with suppress(NotApplicableError):
        outcomes.append(replace(_detour(problem, deadline), method="detour"))
        deadline.report_incumbent(outcomes[0].plan)
    small = damage.bcube.nics <= TREES_MAX_NICS
    if not outcomes or small or _is_far(outcomes[0].plan, damage):
        if outcomes:  # trees only use the remaining time
            hurried = replace(damage, deadline=deadline)
            with suppress(TimeUpError):
                outcomes.append(replace(_trees_until(problem, hurried, deadline), method="trees"))
        else:
            outcomes.append(replace(_trees(problem, deadline), method="trees"))
    plans = [outcome.plan for outcome in outcomes if outcome.plan]
    plan = _fastest(problem, plans, damage.deadline)
    (best,) = (outcome for outcome in outcomes if outcome.plan is plan)
    bounds = [outcome.lower_bound for outcome in outcomes if outcome.lower_bound is not None]
    late = deadline.passed or any(outcome.timed_out for outcome in outcomes)
    return replace(best, lower_bound=max(bounds, default=None), timed_out=late)


def _is_far(plan: Plan | None, damage: Damage) -> bool:
    assert plan is not None
    return busiest_load(plan, damage.deadline) > FAR * damage.load_bound()


def _fastest(problem: Problem, plans: Sequence[Plan], last: Deadline) -> Plan:
    if len(plans) == 1:
        return plans[0]
    return min(plans, key=lambda plan: time_ns(problem, plan, last))


def _connected(run: Method) -> Method:
    """Return a method that first reports a cut network as infeasible."""

    def method(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        cut = infeasibility_of(damage_of(problem, deadline))
        return Outcome(None, infeasibility=cut) if cut else run(problem, deadline)

    return method


OWN_METHODS: Mapping[str, Method] = {
    "auto": _connected(_auto),
    "bml": _connected(_bml),
    "detour": _connected(_detour),
    "trees": _connected(_trees),
}
"""All methods except plug-ins, by their names in requests."""


def lower_bound_ns(problem: Problem, damage: Damage, load: Fraction = Fraction(0)) -> int:
    """Return the lower bound (ns) over all plans.

    The busiest NIC carries at least `Damage.load_bound`, or `load` if that is more. N'-1 copies of
    each byte are added, so some server adds at least (N'-1)/N' of the gradient. A contribution
    needs one step for each link to the farthest server.
    """
    if not problem.size_bytes or damage.living < 2:
        return 0
    sent = max(damage.load_bound(), load) * problem.size_bytes
    added = Fraction(damage.living - 1, damage.living) * problem.size_bytes
    return -int(-problem.network.time(sent, added, damage.hops()) // 1)


def ideal_ns(problem: Problem) -> int:
    """Return the time (ns) of Algorithm 1 without failures and with pieces of equal size.

    2(N-1)/(kN)·T_F, 2k start-up costs a layer, and the time to add (N-1)/N of the gradient.
    """
    servers, levels = problem.bcube.servers, problem.bcube.k
    shares = Fraction(2 * (servers - 1), levels * servers), Fraction(servers - 1, servers)
    starts = 2 * levels * sum(size > 0 for size in problem.chunks)
    sent, added = (share * problem.size_bytes for share in shares)
    return -int(-problem.network.time(sent, added, starts) // 1)


def infeasibility_of(damage: Damage) -> Infeasibility | None:
    """Return the reason why no plan exists, or None."""
    if not damage.living:
        return Infeasibility("every server has failed", ("failed.servers",))
    part = damage.cut_off()
    if not part:
        return None
    names = ", ".join(str([*damage.bcube.digits(server)]) for server in part[:8])
    more = f" and {len(part) - 8} more" if len(part) > 8 else ""
    noun = "server" if len(part) == 1 else "servers"
    return Infeasibility(
        f"the failures cut off {noun} {names}{more} from the other "
        f"{damage.living - len(part)} that work",
        tuple(
            f"failed.{name}"
            for name in ("servers", "nics", "switches")
            if getattr(damage.failed, name)
        ),
    )


# ---
# Number of pipeline rounds: into how many parts to cut each piece.
#
# Method: closed-form optimum for divisible sizes, then exact prices of it, its neighbours and 1;
# why: docs/bml.md, "Why the number of rounds is a square root".
# Guarantee: never worse than one round; not optimal, other R are not tried. Complexity: the loads
# of each step once, and at most five prices.

PlanT = TypeVar("PlanT", Schedule, TreePlan)

MAX_ROUNDS = 1024
"""Largest number of rounds without start-up costs, where more rounds help less and less."""

MAX_HELD = 2**23
"""Up to this product of steps and NICs, the loads of all steps are kept in memory (128 MiB)."""


def with_best_rounds(problem: Problem, plan: PlanT, deadline: Deadline = NEVER) -> PlanT:
    """Return the plan with the fastest number of rounds among those priced in time.

    One round if the loads of all steps do not fit in memory together.
    """
    if plan.steps * plan.bcube.nics > MAX_HELD:
        return plan
    best = plan
    with suppress(TimeUpError):
        deadline.check()
        worth = sorted(_worth_trying(problem, plan, deadline))
        least = time_ns(problem, plan, deadline) if worth else 0
        for rounds in worth:
            candidate = replace(plan, rounds=rounds)
            time = time_ns(problem, candidate, deadline)
            if time < least:
                best, least = candidate, time
    return best


def _worth_trying(problem: Problem, plan: Plan, deadline: Deadline) -> set[int]:
    """Return the candidate numbers of rounds above 1."""
    elements = max(problem.chunks) // problem.element_bytes
    in_use = plan.threads * plan.pieces - len(plan.left_out)
    hops, each = 2 * plan.steps, elements // max(in_use, 1)
    most = min(MAX_ROUNDS, each)
    if not hops or most < max(hops, 2):
        return set()
    best = min(max(_unrounded(problem, plan, deadline), hops), most)
    # Parts are whole elements: among the numbers of rounds that give the same part size, take the
    # fewest.
    sizes = range(max(1, -(-each // best) - 1), -(-each // best) + 2)
    return {best, *(rounds for size in sizes if 2 <= (rounds := -(-each // size)) <= most)}


def _unrounded(problem: Problem, plan: Plan, deadline: Deadline) -> int:
    """Return the optimal number of rounds if sizes were divisible."""
    layout = plan.layout(problem.size_bytes // problem.element_bytes, problem.element_bytes)
    hops = hops_of(plan, layout, deadline)
    sent = accumulate(hop.sent for hop in hops)
    received = accumulate(hop.received for hop in hops)
    times = [
        problem.network.time(max(int(out.max()), int(into.max())))
        for out, into in zip(sent, received, strict=True)
    ]
    excess = 2 * sum(times[:-1]) - (2 * plan.steps - 1) * times[-1]
    starts = problem.network.startup_ns * sum(size > 0 for size in problem.chunks)
    return isqrt(int(max(excess, Fraction(0)) / starts)) if starts else MAX_ROUNDS


# ---
# Smaller pieces for servers that have lost NICs, to balance the load of NICs.
#
# Method: golden-section search over one common weight of the pieces that such a server passes on;
# why: docs/bml.md, "Why smaller pieces are found by a line search".
# Guarantee: never a larger load than with equal pieces. With two levels nothing can be gained.
# Complexity: twice the time of summing loads, and O(k·N) for each weight. Source: own.


def balanced(schedule: Schedule, damage: Damage) -> Schedule:
    """Return the schedule with the piece weight that minimises the load of the busiest NIC."""
    bcube = schedule.bcube
    slices = {
        (thread * bcube.servers + offset, thread * bcube.servers + offset + length)
        for server in {server for server, _ in damage.down}
        for thread in range(bcube.k)
        for offset, length in [slice_of(bcube, thread, 0, server)]
    }
    if bcube.k < 3 or not slices:
        return schedule
    lighter = replace(schedule, light=tuple(sorted(slices)))
    in_use = schedule.threads * schedule.pieces - len(schedule.left_out)
    covered = sum(stop - first for first, stop in slices)
    least = 0 if covered < in_use else 1  # some piece must have a weight
    # In units of weight no piece is rounded, so loads are linear in the weight.
    low, high = (
        both_ways(candidate, candidate.layout(candidate.total_weight, 1), damage.deadline)
        for candidate in (replace(lighter, light_weight=weight) for weight in (least, FULL_WEIGHT))
    )

    def load(weight: int) -> Fraction:
        ahead, behind = weight - least, FULL_WEIGHT - weight
        busiest = int((low * behind + high * ahead).max())
        total = replace(lighter, light_weight=weight).total_weight
        return Fraction(busiest, (FULL_WEIGHT - least) * total)

    best = _minimum(load, least, FULL_WEIGHT)
    return replace(lighter, light_weight=best) if best < FULL_WEIGHT else schedule


def _minimum(value: Callable[[int], Fraction], low: int, high: int) -> int:
    """Return the minimiser of a quasi-convex function of integers, the larger one on ties."""
    at = cache(value)
    while high - low > 2:
        left = low + (high - low) * 3 // 8
        right = max(left + 1, low + (high - low) * 5 // 8)
        if at(left) < at(right):
            high = right
        else:
            low = left
    return min(range(low, high + 1), key=lambda place: (at(place), -place))
