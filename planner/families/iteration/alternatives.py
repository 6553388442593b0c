"""Enumerate synchronisation algorithms and modes, each with its best plan and its lower bound.

Problem: which plan is best for each algorithm × mode (replicated or sharded)?
Method: algorithms of equal cost are planned once, the cheapest first, beginning with their mixture.
If the bound of an algorithm and a mode is below the best plan so far, the best plan is searched
(`planner.caramel`, or iBatch's batches both ways, `interleaved` and the baselines); if not, a plan
is made without a search. Transfers over the cap are cut; `filling` competes.
Guarantee: each bound holds for all plans of its algorithm and mode under the plan's op order; their
minimum holds for all of them. Alternatives left unplanned at the deadline count by their bound.
Complexity: that of the families' methods, for each distinct cost that may win.
Source: own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import ge, itemgetter

from planner.families import caramel
from planner.families.caramel.nested_windows import Targets, tightened
from planner.families.caramel.pricing import LoadPricer, plan_of
from planner.families.iteration.baselines import (
    GRADIENTS,
    both_ways,
    enforced,
    from_gradients,
    layers_apart,
    servers,
)
from planner.families.iteration.beside import planned_beside
from planner.families.iteration.bounds import bound, raised
from planner.families.iteration.evaluation import heads_of, lasting, simplest, simplicity
from planner.families.iteration.fewer_transfers import fewer_transfers
from planner.families.iteration.plan import Mode, Plan
from planner.families.iteration.problem import Problem
from planner.families.iteration.push_pull_interleaving import interleaved
from planner.families.iteration.transfer_limit import (
    capped,
    filled,
    settled,
    too_long,
    too_many,
    too_small,
)
from planner.families.iteration.ways import MIXED, Way, lines_of
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import NotApplicableError
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.result import Infeasibility

ROUNDING = 10**6
"""Sharded plans within 1/ROUNDING of each other are equally good. Plans that cut no parameter are
preferred then: they are simpler, and can be exported."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """The best plan found for one algorithm and one mode.

    Attributes
    ----------
    synchronisation : Way
        The algorithm, or several, and its cost.
    mode : {"replicated", "sharded"}
        Who updates the parameters.
    plan : Plan or None
        Its plan; None if there is none.
    objective_ns : int or None
        Iteration time of the plan.
    lower_bound_ns : int or None
        Lower bound over all plans of this algorithm and mode; None if there can be no plan.
    infeasibility : Infeasibility or None
        Why there is no plan.
    timed_out : bool
        Whether the time limit cut the search short.
    """

    synchronisation: Way
    mode: Mode
    plan: Plan | None
    objective_ns: int | None
    lower_bound_ns: int | None
    infeasibility: Infeasibility | None = None
    timed_out: bool = False


def alternatives(
    problem: Problem,
    deadline: Deadline,
    progress: Callable[[str], None] | None = None,
    *,
    simple: bool = True,
) -> tuple[Alternative, ...]:
    """Return every algorithm in both modes, in the order of the algorithms.

    Parameters
    ----------
    problem : Problem
        The problem.
    deadline : Deadline
        When to stop planning. The first algorithm has a plan even then.
    progress : callable, optional
        Called with the name of each alternative before it is planned.
    simple : bool
        Whether to send together what can be without taking longer.
    """
    size = sum(problem.pushed + problem.pulled)
    distinct = {_price(option): option for option in reversed(problem.options)}  # the mixture first
    known: dict[_Price, dict[Mode, Alternative]] = {}
    cheapest = set(map(_price, problem.cheapest))
    best: int | None = None
    prices = sorted(distinct, key=lambda price: price[0].cost_ns(size))
    for number, price in enumerate(prices, 1):
        synchronisation = distinct[price]
        if progress:
            progress(f"{synchronisation.algorithm} ({number} of {len(prices)})")
        if best is not None and deadline.passed:
            known[price] = _unplanned(problem, synchronisation, price in cheapest)
            continue
        made = [
            planned for by_mode in known.values() for planned in by_mode.values() if planned.plan
        ]
        known[price] = _both_modes(problem, synchronisation, made, best, deadline)
        for planned in sorted(known[price].values(), key=lambda planned: planned.objective_ns or 0):
            if planned.objective_ns is not None and (best is None or planned.objective_ns < best):
                best = planned.objective_ns
                deadline.offer(planned.plan)
    if simple:
        known = {
            price: {mode: _simple(problem, made, deadline) for mode, made in by_mode.items()}
            for price, by_mode in known.items()
        }
    return tuple(
        _renamed(known[_price(option)][mode], option)
        for option in problem.options
        for mode in problem.modes
    )


def _simple(problem: Problem, made: Alternative, deadline: Deadline) -> Alternative:
    if made.plan is None or made.objective_ns is None:
        return made
    plan = fewer_transfers(problem, made.plan, made.objective_ns, deadline)
    return replace(made, plan=plan)


_Price = tuple[AffineCost | TableCost | DepthCost, ...]


def _price(way: Way) -> _Price:
    """Return the costs that make two ways interchangeable."""
    return way.half, way.pull, way.all_reduce


def _renamed(alternative: Alternative, synchronisation: Way) -> Alternative:
    plan = alternative.plan
    if plan is not None and synchronisation.algorithm != MIXED:
        plan = replace(plan, algorithm=synchronisation.algorithm)
    return replace(alternative, synchronisation=synchronisation, plan=plan)


def _unplanned(problem: Problem, synchronisation: Way, cheapest: bool) -> dict[Mode, Alternative]:
    """Return an algorithm's bounds after the deadline, if no other algorithm has lower ones."""
    late = Infeasibility("not planned: the time limit had passed", ("time_limit_s",))
    unplanned = {}
    for mode in problem.modes:
        small = too_small(problem, mode) or synchronisation.refusal(mode)
        least = None
        refused = any(option.refusal(mode) for option in problem.cheapest)
        if (cheapest or refused) and not small:  # if these have no bound, others' count
            least = bound(problem, synchronisation, mode, brief=True)
        unplanned[mode] = Alternative(
            synchronisation, mode, None, None, least, small or late, timed_out=not small
        )
    return unplanned


def _both_modes(
    problem: Problem,
    synchronisation: Way,
    made: Sequence[Alternative],
    best: int | None,
    deadline: Deadline,
) -> dict[Mode, Alternative]:
    """Plan for one algorithm, replicated and sharded, the mode with the lower bound first.

    `made` are alternatives planned before with the mixture: if a plan among them uses this
    algorithm only, no search is needed.
    """
    same = {
        alternative.mode: alternative.plan
        for alternative in made
        if alternative.plan
        and alternative.plan.way == synchronisation.algorithm
        and problem.interference.is_none  # under contention no plan is proven to be the best
    }
    by_mode: dict[Mode, Alternative] = {}
    bounds: dict[Mode, int] = {}
    for mode in problem.modes:
        small = too_small(problem, mode) or synchronisation.refusal(mode)
        many = too_many(problem, mode) or too_long(problem, synchronisation, mode)
        if not small:
            bounds[mode] = bound(problem, synchronisation, mode, brief=deadline.passed)
        if small or many:  # if too many: plans exist, though none is made, so their bound counts
            by_mode[mode] = Alternative(
                synchronisation, mode, None, None, bounds.pop(mode, None), small or many
            )
    for mode, quick in sorted(bounds.items(), key=itemgetter(1)):
        least, known = quick, best is not None and not deadline.passed
        if best is not None and known:
            least = raised(problem, synchronisation, mode, quick, best)
        open_ = best is None or least < best
        if not open_ and mode == "replicated":
            open_ = _sooner_unenforced(problem, synchronisation, best or 0, deadline)
        searched = open_ and mode not in same and not deadline.passed
        planned = _replicated if mode == "replicated" else _sharded
        plans, timed_out = planned(problem, synchronisation, least, deadline, searched)
        if searched and not problem.interference.is_none:
            plans, late = planned_beside(problem, synchronisation, mode, plans, _sharded, deadline)
            timed_out |= late
        if mode in same:
            plans.insert(0, same[mode])
        alternative = _best(problem, synchronisation, mode, plans, least, deadline)
        assert alternative.plan is not None
        assert alternative.objective_ns is not None
        best = min(alternative.objective_ns, alternative.objective_ns if best is None else best)
        holds, plan = least, alternative.plan
        if plan.backward_orders != (problem.base.order.backward,):
            holds, known = bound(problem, synchronisation, mode, plan), False
        if not known and not deadline.passed:
            holds = raised(problem, synchronisation, mode, holds, best, plan)
        by_mode[mode] = replace(
            alternative,
            lower_bound_ns=holds,
            timed_out=alternative.timed_out
            or timed_out
            or (open_ and mode not in same and not searched),
        )
    return by_mode


def _sooner_unenforced(
    problem: Problem, synchronisation: Way, best: int, deadline: Deadline
) -> bool:
    """Return whether a plan without an enforced op order may beat the best plan."""
    try:
        orders = problem.base.drawn_orders(deadline)
    except NotApplicableError:
        return False
    drawn = Plan(synchronisation.algorithm, (), orders, problem.base.order.forward)
    if all(map(ge, heads_of(problem, drawn), problem.base.windows.heads)):
        return False
    least = bound(problem, synchronisation, "replicated", drawn)
    return least < best and (
        raised(problem, synchronisation, "replicated", least, best, drawn) < best
    )


def _replicated(
    problem: Problem,
    synchronisation: Way,
    least: int,
    deadline: Deadline,
    searched: bool,
) -> tuple[list[Plan], bool]:
    """Return plans of all-reduces, and whether the time limit cut in."""
    name = synchronisation.algorithm
    if not searched:
        return [_nested(problem, synchronisation, least)], False
    gradients = problem.gradients[name]
    result = caramel.solve(gradients, time_limit=deadline.share(1), tie_break=None)
    assert result.plan is not None
    plans, room = [from_gradients(name, result.plan)], problem.room("replicated")
    timed_out = result.timed_out
    if room is not None and any(transfer.size_bytes > room for transfer in plans[0].transfers):
        for rule in GRADIENTS.values():  # fitting transfers can beat cut ones
            try:
                deadline.check()
                plans.append(rule(problem, synchronisation, deadline))
            except NotApplicableError:
                continue
            except TimeUpError:
                timed_out = True
                break
    return plans, timed_out


def _nested(problem: Problem, synchronisation: Way, least: int) -> Plan:
    """Return the best plan of all-reduces that needs no search."""
    name = synchronisation.algorithm
    gradients = problem.gradients[name]
    pricer, element = LoadPricer(gradients.windows, gradients.cost), gradients.element_bytes
    lines = lines_of(synchronisation, "all_reduce")
    loads = []
    for nested in tightened(gradients.windows):
        targets = Targets(nested, lines)
        reached, openings = targets.least(least)
        loads += [targets.whole_loads(openings), targets.cut_loads(reached, openings, element)]
    return from_gradients(name, plan_of(gradients, gradients.order, min(loads, key=pricer.rank)))


def _sharded(
    problem: Problem,
    synchronisation: Way,
    least: int,
    deadline: Deadline,
    searched: bool,
) -> tuple[list[Plan], bool]:
    """Return plans of pushes and pulls, and whether the time limit cut in."""
    name, room = synchronisation.algorithm, problem.room("sharded")
    lines = lines_of(synchronisation, "push")
    if deadline.passed:
        return [enforced(problem, name, next(interleaved(problem, lines, least, deadline)))], False
    plans = [enforced(problem, name, both_ways(problem, synchronisation, room))]
    if not searched:
        return plans, False
    plans += [servers(problem, synchronisation), layers_apart(problem, synchronisation)]
    plans += [
        enforced(problem, name, transfers)
        for transfers in interleaved(problem, lines, least, deadline)
    ]
    return plans, deadline.passed


def _best(
    problem: Problem,
    synchronisation: Way,
    mode: Mode,
    plans: Sequence[Plan],
    least: int,
    deadline: Deadline,
) -> Alternative:
    """Return the best of the plans of one mode, none of which is below a bound."""
    room, timed_out = problem.room(mode), False
    tight = room is not None and any(
        transfer.size_bytes > room for plan in plans for transfer in plan.transfers
    )
    filling = (
        filled(problem, synchronisation, mode, waiting=waiting)
        for waiting in (True, False)
        if tight and (waiting or not deadline.passed)
    )
    priced: list[tuple[int, Plan]] = []
    for plan in chain(filling, plans):
        if priced and deadline.passed:
            timed_out = True
            break
        fitting = settled(capped(problem, plan), synchronisation)
        priced.append((lasting(problem, fitting)(problem.costs), fitting))
    objective = min(price for price, _ in priced)
    if mode == "sharded" and objective > least:  # the simplest of those equal up to rounding
        near = [entry for entry in priced if entry[0] <= objective + objective // ROUNDING]
        priced = [entry for entry in near if not _is_cut(problem, entry[1])] or near
        objective = min(price for price, _ in priced)
    shortest = [plan for price, plan in priced if price == objective]
    late = deadline.passed
    best = min(shortest, key=simplicity) if late else simplest(problem, shortest)
    return Alternative(synchronisation, mode, best, objective, least, timed_out=timed_out)


def _is_cut(problem: Problem, plan: Plan) -> bool:
    """Return whether a sharded plan cuts a parameter."""
    return any(
        part.stop - part.start < sizes[part.parameter]
        for transfer in plan.transfers
        for sizes in (problem.pulled if transfer.kind == "pull" else problem.pushed,)
        for part in transfer.parts
    )
