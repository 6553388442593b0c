"""Enumerate synchronisation algorithms and modes, each with its best plan and its lower bound.

Problem: which plan is best for each algorithm × mode (replicated or sharded)?
Method: algorithms of equal cost are planned once, the cheapest first, beginning with their mixture.
If the bound of an algorithm and a mode is below the best plan so far, the best plan is searched
(`planner.caramel`, or iBatch's batches both ways, `interleaved` and the baselines); if not, a plan
is made without a search. Transfers over the cap are cut; plans of `greedy_fill` compete.
Guarantee: each bound holds for all plans of its algorithm and mode under the plan's op order; their
minimum holds for all of them. Alternatives left unplanned at the deadline count by their bound.
Under contention a plan is no longer than any baseline's or any plan made without it, except at
the time limit; the only proven bounds are those without contention.
Complexity: that of the families' methods, for each distinct cost that may win.
Source: own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import chain
from math import ceil
from operator import ge, itemgetter

from planner.families import caramel
from planner.families.caramel.bounds import Targets, inner_nesting
from planner.families.caramel.pricing import LoadPricer, plan_of
from planner.families.iteration.baselines import (
    BY_ANY_ALGORITHM,
    GRADIENTS,
    both_ways,
    enforced,
    plans_by,
    servers,
)
from planner.families.iteration.bounds import bound, tightened_bound
from planner.families.iteration.evaluation import (
    cost_of,
    evaluate,
    heads_of,
    lasting,
    simplicity,
)
from planner.families.iteration.plan import (
    MIXED,
    MixedAlgorithms,
    Mode,
    Plan,
    Way,
    from_gradients,
    lines_of,
)
from planner.families.iteration.problem import Problem
from planner.families.iteration.push_pull_interleaving import interleaved
from planner.families.iteration.transfers import (
    assign_algorithms,
    fewer_transfers,
    greedy_fill,
    limit_infeasible,
    split_to_limit,
    split_where_cheaper,
    too_many_transfers,
    with_both,
)
from planner.model.contention import NO_CONTENTION
from planner.model.costs import AffineCost, DepthCost, TableCost, scaled_cost
from planner.model.errors import NotApplicableError
from planner.solving.contention import (
    ContentionPlanner,
    best_under_contention,
    mean_slowdown,
    slowed,
)
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility

LATE = Infeasibility("not planned: the time limit had passed", ("time_limit_s",))

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

    The first algorithm has a plan even after the deadline. `progress` is called with the name of
    each alternative before it is planned. `simple`: send together what can be without taking
    longer.
    """
    size = sum(problem.pushed + problem.pulled)
    distinct = {_price(option): option for option in reversed(problem.options)}  # the mixture first
    known: dict[_Price, dict[Mode, Alternative]] = {}
    cheapest = set(map(_price, problem.cheapest))
    best: int | None = None
    prices = sorted(distinct, key=lambda price: price[0].cost_ns(size))
    for number, price in enumerate(prices, 1):
        planner = Planner(problem, distinct[price], deadline)
        if progress:
            progress(f"{planner.way.algorithm} ({number} of {len(prices)})")
        made = [each for by_mode in known.values() for each in by_mode.values()]
        known[price] = planner.both_modes(made, best, cheapest=price in cheapest)
        for planned in sorted(known[price].values(), key=lambda planned: planned.objective_ns or 0):
            if planned.objective_ns is not None and (best is None or planned.objective_ns < best):
                best = planned.objective_ns
                deadline.report_incumbent(planned.plan)
    for by_mode in known.values() if simple else ():
        for mode, best_plan in by_mode.items():
            if best_plan.plan is not None and best_plan.objective_ns is not None:
                plan = fewer_transfers(problem, best_plan.plan, best_plan.objective_ns, deadline)
                by_mode[mode] = replace(best_plan, plan=plan)
    return tuple(
        _renamed(known[_price(option)][mode], option)
        for option in problem.options
        for mode in problem.modes
    )


_Price = tuple[AffineCost | TableCost | DepthCost, ...]


def _price(way: Way) -> _Price:
    """Return the costs of a way; ways of equal costs have equal plans."""
    return way.half, way.pull, way.all_reduce


def _renamed(alternative: Alternative, way: Way) -> Alternative:
    plan = alternative.plan
    if plan is not None and way.algorithm != MIXED:
        plan = replace(plan, algorithm=way.algorithm)
    return replace(alternative, synchronisation=way, plan=plan)


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans one algorithm, or a mixture, in both modes."""

    problem: Problem
    way: Way
    deadline: Deadline

    def both_modes(
        self, made: Sequence[Alternative], best: int | None, *, cheapest: bool
    ) -> dict[Mode, Alternative]:
        """Plan replicated and sharded, the mode with the lower bound first.

        `made` are alternatives planned before with the mixture: if a plan among them uses this
        algorithm only, no search is needed. `best` is the value of the best plan so far: if there
        is one after the deadline, only the bounds of the cheapest algorithms are computed.
        """
        problem, way, deadline = self.problem, self.way, self.deadline
        same = {
            alternative.mode: alternative.plan
            for alternative in made
            if alternative.plan
            and alternative.plan.way == way.algorithm
            and problem.interference.is_none  # under contention no plan is proven to be the best
        }
        by_mode: dict[Mode, Alternative] = {}
        bounds: dict[Mode, int] = {}
        late = best is not None and deadline.passed
        for mode in problem.modes:
            small = limit_infeasible(problem, mode) or way.refusal(mode)
            refused = any(option.refusal(mode) for option in problem.cheapest)
            if not small and (
                not late or cheapest or refused
            ):  # the cheapest algorithms' bounds hold for all, if these have plans
                bounds[mode] = bound(problem, way, mode, brief=deadline.passed)
            reason = small or (LATE if late else too_many_transfers(problem, mode))
            if reason:  # plans may exist, though none is made: their bound counts
                least, cut = bounds.pop(mode, None), late and not small
                by_mode[mode] = Alternative(way, mode, None, None, least, reason, timed_out=cut)
        for mode, quick in sorted(bounds.items(), key=itemgetter(1)):
            by_mode[mode] = self._planned(mode, quick, same.get(mode), best)
            objective = by_mode[mode].objective_ns or 0
            best = objective if best is None else min(objective, best)
        return by_mode

    def _planned(self, mode: Mode, quick: int, same: Plan | None, best: int | None) -> Alternative:
        """Return the best plan of a mode, given a bound, and a plan that the mixture found."""
        problem, way, deadline = self.problem, self.way, self.deadline
        least, known = quick, best is not None and not deadline.passed
        if best is not None and known:
            least = tightened_bound(problem, way, mode, quick, best)
        open_ = best is None or least < best
        if not open_ and mode == "replicated":
            open_ = self._sooner_unenforced(best or 0)
        searched = open_ and same is None and not deadline.passed
        planned = self._replicated if mode == "replicated" else self.sharded
        plans, timed_out = planned(least, searched=searched)
        if searched and not problem.interference.is_none:
            plans, late = self.contended(mode, plans)
            timed_out |= late
        if same is not None:
            plans.insert(0, same)
        alternative = self._best(mode, plans, least)
        plan, objective = alternative.plan, alternative.objective_ns
        assert plan is not None
        assert objective is not None
        holds = least
        if plan.backward_orders != (problem.base.order.backward,):
            holds, known = bound(problem, way, mode, plan), False
        if not known and not deadline.passed:
            shortest = objective if best is None else min(objective, best)
            holds = tightened_bound(problem, way, mode, holds, shortest, plan)
        late = timed_out or (open_ and same is None and not searched)
        return replace(alternative, lower_bound_ns=holds, timed_out=alternative.timed_out or late)

    def _sooner_unenforced(self, best: int) -> bool:
        """Return whether a plan without an enforced op order may beat the best plan."""
        problem, way = self.problem, self.way
        try:
            orders = problem.base.drawn_orders(self.deadline)
        except NotApplicableError:
            return False
        drawn = Plan(way.algorithm, (), orders, problem.base.order.forward)
        if all(map(ge, heads_of(problem, drawn), problem.base.windows.heads)):
            return False
        least = bound(problem, way, "replicated", drawn)
        return (
            least < best and tightened_bound(problem, way, "replicated", least, best, drawn) < best
        )

    def _replicated(self, least: int, *, searched: bool) -> tuple[list[Plan], bool]:
        """Return plans of all-reduces, and whether the time limit ended the search."""
        problem, name, deadline = self.problem, self.way.algorithm, self.deadline
        if not searched:
            return [self._nested(least)], False
        result = caramel.solve(
            problem.gradients[name], time_limit=deadline.share(1), tie_break=None
        )
        assert result.plan is not None
        plans, room = [from_gradients(name, result.plan)], problem.transfer_limit("replicated")
        timed_out = result.timed_out
        if room is not None and any(transfer.size_bytes > room for transfer in plans[0].transfers):
            fitting, late = plans_by(GRADIENTS, problem, self.way, deadline)
            plans += fitting  # these can beat cut ones
            timed_out |= late
        return plans, timed_out

    def _nested(self, least: int) -> Plan:
        """Return the best plan of all-reduces that is made without a search."""
        name = self.way.algorithm
        gradients = self.problem.gradients[name]
        pricer, element = LoadPricer(gradients.windows, gradients.cost), gradients.element_bytes
        lines = lines_of(self.way, "all_reduce")
        nests = inner_nesting(gradients.windows)
        loads = [Targets(nested, lines).plans(least, element) for nested in nests]
        best = min(chain.from_iterable(loads), key=pricer.rank)
        return from_gradients(name, plan_of(gradients, gradients.order, best))

    def sharded(self, least: int, *, searched: bool) -> tuple[list[Plan], bool]:
        """Return plans of pushes and pulls, and whether the time limit ended the search."""
        problem, way, deadline = self.problem, self.way, self.deadline
        name, between = way.algorithm, interleaved(problem, way, least, deadline)
        if deadline.passed:
            return [enforced(problem, name, next(between))], False
        plans = [
            enforced(problem, name, both_ways(problem, way, problem.transfer_limit("sharded")))
        ]
        if not searched:
            return plans, False
        plans.append(servers(problem, way))
        plans += [enforced(problem, name, transfers) for transfers in between]
        return plans, deadline.passed

    def _fitting(self, plan: Plan) -> Plan:
        cut = split_where_cheaper(self.problem, split_to_limit(self.problem, plan), self.way)
        return assign_algorithms(cut, self.way)

    def contended(self, mode: Mode, plans: Sequence[Plan]) -> tuple[list[Plan], bool]:
        """Return plans of one mode under contention, and whether the time limit ended the search.

        The result contains `plans`, made without contention, and the plans of all baselines.
        Sharded plans are searched by the fixed point of `planner.solving.contention`; all-reduces
        have been searched by `planner.caramel`.
        """
        problem, way, deadline = self.problem, self.way, self.deadline
        of_baselines, timed_out = plans_by(BY_ANY_ALGORITHM, problem, way, deadline)
        known = [*plans, *(plan for plan in of_baselines if plan.mode == mode)]
        if mode == "replicated" or deadline.passed:
            return known, timed_out or deadline.passed
        order = problem.base.order
        names = problem.graph.names_of((*order.backward, *order.forward))
        cluster = replace(problem.cluster, interference=NO_CONTENTION)
        alone = replace(problem, cluster=cluster, op_order=names)

        def asked(plan: Plan | None, charged: int) -> Planner:
            if plan is None:
                return replace(self, problem=alone, way=with_charge(way, charged))
            evaluation = evaluate(problem, plan)
            order = (*plan.backward_orders[0], *plan.forward_order)
            lasted = sum(
                cost_of(problem.costs, plan, transfer).cost_ns(transfer.size_bytes)
                for transfer in plan.transfers
            )
            graph = slowed(problem.graph, order, evaluation.iteration)
            factor = mean_slowdown(evaluation.communication_ns, lasted)
            return replace(
                self, problem=replace(alone, graph=graph), way=with_charge(way, charged, factor)
            )

        def searched(asked: Planner) -> Iterator[Outcome[Plan]]:
            least = bound(asked.problem, asked.way, "sharded", brief=True)
            made, late = asked.sharded(least, searched=True)
            for plan in made:
                yield Outcome(self._fitting(plan), timed_out=late)

        family = ContentionPlanner(
            lasts=lambda plan: evaluate(problem, plan).iteration_ns,
            transfers=lambda plan: plan.transfers,
            asked=asked,
            search=searched,
            joined=lambda plan, place: with_both(problem, way, plan, place),
        )
        first = (Outcome(self._fitting(plan)) for plan in known)
        least = bound(problem, way, mode, brief=True)
        startup = problem.contention("push").least_ns
        outcome = best_under_contention(family, first, startup, deadline, least)
        assert outcome.plan is not None
        return [*known, outcome.plan], timed_out or outcome.timed_out

    def _best(self, mode: Mode, plans: Sequence[Plan], least: int) -> Alternative:
        """Return the best of the plans of one mode; none takes less than `least` (ns)."""
        problem, way, deadline = self.problem, self.way, self.deadline
        room, timed_out = problem.transfer_limit(mode), False
        tight = room is not None and any(
            transfer.size_bytes > room for plan in plans for transfer in plan.transfers
        )
        filling = (
            greedy_fill(problem, way, mode, waiting=waiting)
            for waiting in (True, False)
            if tight and (waiting or not deadline.passed)
        )
        priced: list[tuple[int, Plan]] = []
        for plan in chain(filling, plans):
            if priced and deadline.passed:
                timed_out = True
                break
            fitting = self._fitting(plan)
            priced.append((lasting(problem, fitting)(problem.costs), fitting))
        objective = min(price for price, _ in priced)
        if mode == "sharded" and objective > least:  # the simplest of those equal up to rounding
            near = [entry for entry in priced if entry[0] <= objective + objective // ROUNDING]
            priced = [entry for entry in near if not _is_cut(problem, entry[1])] or near
            objective = min(price for price, _ in priced)
        best = min((plan for price, plan in priced if price == objective), key=simplicity)
        return Alternative(way, mode, best, objective, least, timed_out=timed_out)


def _is_cut(problem: Problem, plan: Plan) -> bool:
    """Return whether a sharded plan cuts a parameter: else each has one push and one pull."""
    parts = sum(len(transfer.parts) for transfer in plan.transfers)
    return parts > len(problem.pushed) + len(problem.pulled)


def with_charge(way: Way, charged: int, factor: Fraction = Fraction(1)) -> Way:
    """Return a way whose halves cost `factor` times as much, and `charged` ns more per transfer."""
    later = partial(scaled_cost, startup=factor, rate=factor, extra_ns=charged, rounding=ceil)
    if isinstance(way, MixedAlgorithms):
        return replace(way, options=tuple(option.changed(later) for option in way.options))
    return way.changed(later)
