"""The methods by name, and the way every plan takes: made, checked, priced, bounded.

`auto` is `bml` where nothing has failed, which then is optimal but for start-up costs and whole
elements; else the better one of `detour` and `trees`, which is left out in large networks unless
detours are far from the bound.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from planner.bml.checker import Ground, check
from planner.bml.damage import Damage
from planner.bml.evaluation import busiest_load
from planner.bml.pricing import is_intact, time_ns
from planner.bml.problem import MAX_DAMAGED_NICS, Problem
from planner.bml.schedule import Schedule
from planner.bml.spanning import Tree
from planner.bml.trees import TreePlan
from planner.deadline import NEVER, Deadline, TimeUpError
from planner.errors import NotApplicableError
from planner.methods import deadline_in, known_method, plan_of_method
from planner.results import Infeasibility, Result
from planner.topologies import BCube
from planner.validation import total

if TYPE_CHECKING:
    from planner.bml.trees import RootedTree

__all__ = [
    "METHODS",
    "AnyPlan",
    "Method",
    "ideal_ns",
    "last_deadline",
    "lower_bound_ns",
    "solve",
    "without_plan",
]

AnyPlan = Schedule | TreePlan

TREES_MAX_NICS = 400
"""Networks of at most so many NICs are re-planned by `auto` with trees too."""

FAR = Fraction(3, 2)
"""So are others where detours load the busiest NIC more than the bound by this factor."""

PACKED_MAX_NICS = 1024
"""Up to so many NICs trees are packed by a linear program, in some ten seconds at worst."""

FEW_TREES = 128
"""In larger networks so many have equal shares, each made where there is least load before it."""

FEW_HOPS = 2**21
"""Unless so many trees would have more hops than this in all."""

GRACE_S = 0.35
"""Seconds after the time limit in which a plan may still be checked and priced."""


class Outcome(NamedTuple):
    """What a method answers.

    Attributes
    ----------
    method : str
        What made the plan; `auto` has a choice.
    plan : Schedule or TreePlan
        The plan.
    load_bound : Fraction
        A bound on what the busiest NIC carries, × T_F, if the method proves one.
    timed_out : bool
        Whether the time limit cut in.
    """

    method: str
    plan: AnyPlan
    load_bound: Fraction = Fraction(0)
    timed_out: bool = False


Method = Callable[[Problem, Damage, Deadline], Outcome]


def _bml(problem: Problem, damage: Damage, deadline: Deadline) -> Outcome:  # noqa: ARG001
    if problem.failed:
        raise NotApplicableError("method", "bml is Algorithm 1, which knows no failures")
    return Outcome("bml", Schedule(problem.bcube))


def _detour(problem: Problem, damage: Damage, deadline: Deadline) -> Outcome:
    from planner.bml.balance import balanced
    from planner.bml.detour import detour
    from planner.bml.pipelining import with_best_rounds

    plan = detour(damage)
    if not plan.changed:
        return Outcome("detour", plan)
    plans = [plan]
    if not deadline.passed:
        with suppress(TimeUpError):
            plans.append(balanced(plan, replace(damage, deadline=deadline)))
    plans = [with_best_rounds(problem, one, deadline) for one in dict.fromkeys(plans)]
    best = _fastest(problem, plans, damage.deadline)
    return Outcome("detour", best, timed_out=deadline.passed)


def _trees(problem: Problem, damage: Damage, deadline: Deadline) -> Outcome:
    from planner.bml.packing import few_trees, pack
    from planner.bml.pipelining import with_best_rounds
    from planner.bml.trees import RootedTree

    if damage.bcube.nics > MAX_DAMAGED_NICS:  # as it may be if nothing has failed
        raise NotApplicableError(
            "method",
            f"trees takes networks of at most {MAX_DAMAGED_NICS} NICs, got {damage.bcube.nics}",
        )
    if damage.living == 1:
        (alone,) = set(range(damage.bcube.servers)) - damage.dead
        return Outcome("trees", TreePlan(damage.bcube, (RootedTree(alone, ()),), (Fraction(1),)))
    network = damage.bcube, damage.dead, damage.down
    if damage.bcube.nics > PACKED_MAX_NICS:
        count = max(1, min(FEW_TREES, FEW_HOPS // damage.living))
        packing = few_trees(*network, count, deadline, last=damage.deadline)
        packings = [(packing.trees, packing.weights)]
    else:
        start = _first_trees(damage)
        packing = pack(*network, deadline, start=start, last=damage.deadline)
        packings = [(packing.trees, packing.weights)]
        if start and packing.timed_out:  # then the trees it began with may be better still
            packings.append((tuple(start), (Fraction(1, len(start)),) * len(start)))
    plans = [
        with_best_rounds(
            problem,
            TreePlan(damage.bcube, tuple(_rooted(trees, damage.deadline)), shares),
            deadline,
        )
        for trees, shares in packings
    ]
    best = _fastest(problem, plans, damage.deadline)
    return Outcome("trees", best, packing.bound, packing.timed_out)


def _rooted(trees: Sequence[Tree], deadline: Deadline) -> Iterator["RootedTree"]:
    from planner.bml.trees import root_at_centre

    for tree in trees:
        deadline.check()
        yield root_at_centre(tree)


def _first_trees(damage: Damage) -> list[Tree]:
    """Return the trees of detours to begin with, if there are any."""
    from planner.bml.detour import detour
    from planner.bml.trees import trees_of

    with suppress(NotApplicableError):
        return trees_of(detour(damage), damage.deadline)
    return []


def _auto(problem: Problem, damage: Damage, deadline: Deadline) -> Outcome:
    if not problem.failed:
        return _bml(problem, damage, deadline)
    found = []
    with suppress(NotApplicableError):
        found.append(_detour(problem, damage, deadline))
    small = damage.bcube.nics <= TREES_MAX_NICS
    if not found or small or _is_far(found[0].plan, damage):
        if found:  # a plan is there: trees are for what is left of the time
            with suppress(TimeUpError):
                found.append(_trees(problem, replace(damage, deadline=deadline), deadline))
        else:
            found.append(_trees(problem, damage, deadline))
    best = _fastest(problem, [one.plan for one in found], damage.deadline)
    bound = max(one.load_bound for one in found)
    (method,) = (one.method for one in found if one.plan is best)
    return Outcome(method, best, bound, deadline.passed or any(one.timed_out for one in found))


def _is_far(plan: AnyPlan, damage: Damage) -> bool:
    return busiest_load(plan, damage.deadline) > FAR * damage.load_bound()


def _fastest(problem: Problem, plans: Sequence[AnyPlan], last: Deadline) -> AnyPlan:
    """Return the first of the fastest plans."""
    if len(plans) == 1:
        return plans[0]
    return min(plans, key=lambda one: time_ns(problem, one, last))


METHODS: Mapping[str, Method] = {"auto": _auto, "bml": _bml, "detour": _detour, "trees": _trees}
"""Every method by the name requests use."""


def solve(
    problem: Problem, *, method: str = "auto", time_limit: float | None = None
) -> Result[AnyPlan]:
    """Plan the synchronisation of a gradient.

    Parameters
    ----------
    problem : Problem
        The network, the gradient and what has failed.
    method : str
        A key of `METHODS`.
    time_limit : float, optional
        Seconds after which the best plan so far is returned.

    Returns
    -------
    Result
        The plan, checked and priced outside the method, with a bound that holds for every plan;
        infeasible if the failures cut the network; without a plan too if the time limit passed
        before there was one.

    Raises
    ------
    InvalidInputError
        If the method is unknown or does not apply to the problem.
    """
    known_method(method, METHODS)
    deadline, last = deadline_in(time_limit), last_deadline(time_limit)
    begin = time.perf_counter()
    damage = Damage(problem.bcube, problem.failed, last)
    try:
        return _solved(problem, damage, method, deadline, begin)
    except TimeUpError:
        return without_plan(method, time.perf_counter() - begin)


def last_deadline(time_limit: float | None) -> Deadline:
    """Return when checks and prices of a plan end too, so that there is none."""
    return Deadline(None if time_limit is None else time_limit + GRACE_S)


def without_plan(method: str, runtime_s: float) -> Result[AnyPlan]:
    """Return what is answered if the time was up before there was a plan, checked and priced."""
    reason = Infeasibility("the time limit passed before any plan was found", ("time_limit_s",))
    return Result(method, None, None, None, runtime_s, timed_out=True, infeasibility=reason)


def _solved(
    problem: Problem, damage: Damage, method: str, deadline: Deadline, begin: float
) -> Result[AnyPlan]:
    cut = _cut(damage)
    if cut is not None:
        runtime = time.perf_counter() - begin
        return Result(method, None, None, None, runtime, infeasibility=cut)
    outcome = METHODS[method](problem, damage, deadline)
    runtime = time.perf_counter() - begin
    ground = Ground(damage.bcube, damage.dead, damage.down, exclusive=not problem.failed)
    if isinstance(outcome.plan, TreePlan):
        ground = Ground(damage.bcube, damage.dead, damage.down)
    # Algorithm 1 is there at once, its price is a formula, and a hasty check is short.
    last = NEVER if is_intact(outcome.plan) else damage.deadline
    with plan_of_method(outcome.method):
        check(ground, outcome.plan, last, hasty=damage.deadline.remaining_s is not None)
    price = time_ns(problem, outcome.plan, last)
    cost = total(price, _largest_term(problem), "the time")
    bound = lower_bound_ns(problem, damage, outcome.load_bound)
    return Result(outcome.method, outcome.plan, cost, bound, runtime, outcome.timed_out)


def _largest_term(problem: Problem) -> str:
    """Return the field to name if a time does not fit: T_F does (`Problem`)."""
    network = problem.network
    terms: dict[str, Fraction] = {
        "latency_ns": Fraction(network.latency_ns * len(problem.chunks) * problem.bcube.k),
        "reduce_ns_per_byte": network.reduce_ns_per_byte * problem.size,
        "link_bytes_per_s": network.time(problem.size),
    }
    return max(terms, key=terms.__getitem__)


def lower_bound_ns(problem: Problem, damage: Damage, load: Fraction = Fraction(0)) -> int:
    """Return what every plan takes at least.

    The busiest NIC carries at least its share (`Damage.load_bound`, or `load` if that is more).
    Of each byte N'-1 copies are added up, so some server adds at least (N'-1)/N' of the gradient.
    And what one server contributes takes a step a link to the farthest other one.
    """
    if not problem.size or damage.living < 2:
        return 0
    sent = max(damage.load_bound(), load) * problem.size
    added = Fraction(damage.living - 1, damage.living) * problem.size
    return -int(-problem.network.time(sent, added, damage.hops()) // 1)


def ideal_ns(problem: Problem) -> int:
    """Return the time of Algorithm 1 if nothing had failed and the pieces were all of one size.

    2(N-1)/(kN)·T_F, 2k start-up costs a layer, and the time to add (N-1)/N of the gradient.
    """
    servers, levels = problem.bcube.servers, problem.bcube.k
    shares = Fraction(2 * (servers - 1), levels * servers), Fraction(servers - 1, servers)
    starts = 2 * levels * sum(size > 0 for size in problem.chunks)
    sent, added = (share * problem.size for share in shares)
    return -int(-problem.network.time(sent, added, starts) // 1)


def _cut(damage: Damage) -> Infeasibility | None:
    """Return why there is no plan, if there is none."""
    if not damage.living:
        return Infeasibility("every server has failed", ("failed.servers",))
    part = damage.cut_off()
    if not part:
        return None
    names = ", ".join(_named(damage.bcube, server) for server in part[:8])
    more = f" and {len(part) - 8} more" if len(part) > 8 else ""
    one = "server" if len(part) == 1 else "servers"
    return Infeasibility(
        f"the failures cut off {one} {names}{more} from the other "
        f"{damage.living - len(part)} that work",
        tuple(
            f"failed.{name}"
            for name in ("servers", "nics", "switches")
            if getattr(damage.failed, name)
        ),
    )


def _named(bcube: BCube, server: int) -> str:
    return "[" + ", ".join(map(str, bcube.digits(server))) + "]"
