"""BML's methods by name: Algorithm 1, detours and trees around failures, and the best of them.

Problem: synchronise a gradient on a BCube, whole or damaged. Method: `auto` is `bml` without
failures; it is then optimal except for start-up costs and whole elements. With failures `auto` is
the faster of `detour` and `trees`; large networks try `trees` only if detours are far from the
bound. Guarantee: `lower_bound_ns` bounds every plan. Complexity: that of the modules it names.
Source: BML §4.3 (Algorithm 1); detours and trees are ours.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from planner.families.bml.damage import Damage, damage_of
from planner.families.bml.evaluation import busiest_load
from planner.families.bml.packing import few_trees, pack
from planner.families.bml.pricing import time_ns
from planner.families.bml.problem import MAX_DAMAGED_NICS, Problem
from planner.families.bml.reroute import detour
from planner.families.bml.schedule import Schedule
from planner.families.bml.spanning import Tree
from planner.families.bml.trees import Plan, RootedTree, TreePlan, root_at_centre, trees_of
from planner.families.bml.tuning import balanced, with_best_rounds
from planner.model.errors import NotApplicableError
from planner.model.topologies import BCube
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility

Method: TypeAlias = AnyMethod[Problem, Plan]

TREES_MAX_NICS = 400
"""Networks of up to this many NICs are re-planned by `auto` with trees too."""

FAR = Fraction(3, 2)
"""Larger networks too, if detours load the busiest NIC more than this factor times the bound."""

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
    network = damage.bcube, damage.dead, damage.down
    if large:
        count = max(1, min(FEW_TREES, FEW_HOPS // damage.living))
        start: list[Tree] = []
        packing = few_trees(*network, count, searched, last=damage.deadline)
    else:
        start = _first_trees(damage)
        packing = pack(*network, searched, start=start, last=damage.deadline)
    packings = [(packing.trees, packing.weights)]
    # an unfinished packing may be worse than the trees it started from
    if start and packing.timed_out:
        packings.append((tuple(start), (Fraction(1, len(start)),) * len(start)))
    plans = []
    for trees, shares in packings:
        rooted = tuple(root_at_centre(tree, damage.deadline) for tree in trees)
        plans.append(with_best_rounds(problem, TreePlan(damage.bcube, rooted, shares), deadline))
    best = _fastest(problem, plans, damage.deadline)
    bound = lower_bound_ns(problem, damage, packing.bound)
    return Outcome(best, bound, packing.timed_out)


def _first_trees(damage: Damage) -> list[Tree]:
    """Return the trees of the detour plan as a start, none if detours do not apply."""
    with suppress(NotApplicableError):
        return trees_of(detour(damage), damage.deadline)
    return []


def _auto(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    if not problem.failed:
        return replace(_bml(problem, deadline), method="bml")
    damage = damage_of(problem, deadline)
    outcomes: list[Outcome[Plan]] = []
    with suppress(NotApplicableError):
        outcomes.append(replace(_detour(problem, deadline), method="detour"))
        deadline.offer(outcomes[0].plan)
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
"""Every method by the name requests use, but for plug-ins."""


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
    names = ", ".join(_named(damage.bcube, server) for server in part[:8])
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


def _named(bcube: BCube, server: int) -> str:
    return "[" + ", ".join(map(str, bcube.digits(server))) + "]"
