"""Explain a plan: where its time goes, and what would make the runner-up win.

Method: three parts of the iteration: computation; the exposed communication if start-ups and
further messages were free; and what these add. All are differences of prices of the same plan.
`changes` finds the changes that make the runner-up win.
Guarantee: the parts add up to the iteration.
Complexity: two prices, and those of the crossover.
Source: own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from operator import le
from typing import Literal, TypeAlias

from planner.families.iteration.alternatives import Alternative
from planner.families.iteration.evaluation import Evaluation, evaluate, lasting
from planner.families.iteration.plan import MIXED, How, Mixture, Mode, Plan, Synchronisation, Way
from planner.families.iteration.problem import Problem
from planner.families.iteration.synchronisation import synchronisations
from planner.model.costs import AffineCost, TableCost, scaled_cost
from planner.model.topologies import Rails
from planner.model.validation import MAX_VALUE
from planner.solving.deadline import NEVER, Deadline
from planner.solving.what_if import break_even

# ---
# Break-even factors: the change of the network at which the runner-up plan wins.
#
# Problem: start-ups, further messages or bandwidth of all algorithms are multiplied by one factor,
# up to 1024 either way. Find the factor nearest to 1 at which the runner-up wins. Method:
# bisection. The runner-up *wins* if it is shorter than the chosen plan, both with the same
# transfers and algorithms, each at its best depth; and no usable algorithm of its mode dominates
# its cost (else that algorithm would be as short with the runner-up's plan). Guarantee: at that
# factor the runner-up wins in this sense; planning again, either plan could improve. An algorithm
# reported as dominating stays so for every factor. Complexity: O(algorithms) and two prices of a
# plan, about 60 times per change. Source: own.

CostPart = Literal["startup", "message", "bandwidth"]

PARTS: tuple[CostPart, ...] = ("startup", "message", "bandwidth")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the network that makes another plan the better one.

    Attributes
    ----------
    what : {"startup", "message", "bandwidth"}
        What changes: the start-up of a step, the cost of each further message, or all speeds.
    factor : float
        Factor by which it is multiplied.
    """

    what: CostPart
    factor: float


_Cost: TypeAlias = AffineCost | TableCost

_Parts: TypeAlias = tuple[int | Fraction, ...] | TableCost
"""The parts of a cost that can be compared one by one; a table has none."""

_FREE = AffineCost(0, Fraction(0))


def _parts(cost: _Cost, silent: _Cost) -> _Parts:
    """Return start-ups (ns), further messages (ns) and ns per byte, or the table.

    `silent` is the same cost without start-ups.
    """
    if isinstance(cost, TableCost):
        return cost
    assert isinstance(silent, AffineCost)
    return cost.startup_ns - silent.startup_ns, silent.startup_ns, cost.ns_per_byte


def _scaled_cost(cost: _Cost, silent: _Cost, what: CostPart, factor: Fraction) -> _Cost:
    """Return the cost with one part multiplied; a table has no further messages."""
    parts = _parts(cost, silent)
    startup = factor if what == "startup" else Fraction(1)
    rate = 1 / factor if what == "bandwidth" else Fraction(1)
    if isinstance(parts, TableCost):
        return scaled_cost(parts, startup=startup, rate=rate, most_ns=MAX_VALUE)
    starts, messages, per_byte = parts
    time = starts * startup + messages * (factor if what == "message" else 1)
    return AffineCost(min(round(time), MAX_VALUE), min(per_byte * rate, Fraction(MAX_VALUE)))


_Pair: TypeAlias = tuple[Synchronisation, Synchronisation]
"""An option, and the same option without start-ups."""


def _scaled(pair: _Pair, what: CostPart, factor: Fraction) -> Synchronisation:
    """Return an option with one part of its costs multiplied."""
    (option, silent), gather = pair, pair[0].gather
    return replace(
        option,
        half=_scaled_cost(option.half, silent.half, what, factor),
        whole=_scaled_cost(option.all_reduce, silent.all_reduce, what, factor),
        gather=None if gather is None else _scaled_cost(gather, gather, what, factor),
    )


def dominating(
    problem: Problem, alternative: Alternative, candidates: Sequence[Alternative]
) -> str | None:
    """Return an algorithm whose cost dominates the alternative's in every part, or None."""
    known, kind = _pairs(problem), _kind(alternative)

    def of(algorithm: str) -> list[_Parts]:  # at all depths: another may suit its transfers
        pairs = (pair for how, pair in known.items() if how[0] == algorithm)
        return [_parts(option.cost(kind), silent.cost(kind)) for option, silent in pairs]

    mine = of(alternative.synchronisation.algorithm)
    names = (rival.algorithm for rival in _rivals(alternative, candidates))
    return next((name for name in names if _costs_less(of(name), mine)), None)


def changes(
    problem: Problem,
    plan: Plan,
    alternative: Alternative,
    candidates: Sequence[Alternative],
    deadline: Deadline = NEVER,
) -> tuple[Change, ...]:
    """Return the changes that make an alternative the better one, each by itself.

    Changes not found by the deadline are left out. `alternative` has a plan.
    """
    assert alternative.plan is not None
    rivals, known = _rivals(alternative, candidates), _pairs(problem)
    kind = _kind(alternative)
    lasts, other_lasts = lasting(problem, plan), lasting(problem, alternative.plan)

    def wins(what: CostPart, factor: Fraction) -> bool:
        scaled = {how: _scaled(pair, what, factor) for how, pair in known.items()}

        def of(way: Way) -> list[_Parts]:
            costs = (scaled[_how(option)].cost(kind) for option in way.options)
            return [_parts(cost, _FREE) for cost in costs]

        own = of(alternative.synchronisation)
        if any(_costs_less(of(rival), own) for rival in rivals):
            return False
        costs = _at_any_depth(scaled)
        return other_lasts(costs) < lasts(costs)

    nearest = [(what, break_even(partial(wins, what), deadline)) for what in PARTS]
    return tuple(Change(what, float(factor)) for what, factor in nearest if factor is not None)


def _at_any_depth(options: Mapping[How, Synchronisation]) -> Mapping[How, Way]:
    """Return for each option its algorithm with the cheapest depth for each size."""
    by_name: dict[str, list[Synchronisation]] = {}
    for option in options.values():
        by_name.setdefault(option.algorithm, []).append(option)
    return {
        how: Mixture(how[0], tuple(same)) if len(same := by_name[how[0]]) > 1 else option
        for how, option in options.items()
    }


def _how(option: Synchronisation) -> How:
    return option.algorithm, option.depth


def _rivals(alternative: Alternative, candidates: Sequence[Alternative]) -> list[Way]:
    """Return the algorithms that have a plan in the alternative's mode.

    A mixture of algorithms is no rival, and has none.
    """
    if alternative.synchronisation.algorithm == MIXED:
        return []
    return [
        candidate.synchronisation
        for candidate in candidates
        if candidate.mode == alternative.mode
        and candidate.plan is not None
        and candidate.synchronisation.algorithm != MIXED
    ]


def _kind(alternative: Alternative) -> str:
    """Return the kind of an alternative's transfers whose costs are compared."""
    return "all_reduce" if alternative.mode == "replicated" else "push"


def _costs_less(theirs: Sequence[_Parts], own: Sequence[_Parts]) -> bool:
    """Return whether each of our costs is dominated by one of theirs, and the costs differ."""
    return theirs != own and all(any(_no_more(cost, mine) for cost in theirs) for mine in own)


def _no_more(cost: _Parts, other: _Parts) -> bool:
    """Return whether no part costs more than the same part of another cost."""
    if isinstance(cost, TableCost) or isinstance(other, TableCost):
        return cost == other
    return all(map(le, cost, other))


def _pairs(problem: Problem) -> Mapping[How, _Pair]:
    """Return each algorithm with its costs if start-ups were free."""
    cluster, topology = problem.cluster, problem.cluster.topology
    if isinstance(topology, Rails):
        topology = replace(topology, link_startup_ns=0)
    nic = replace(cluster.nic, startup_ns=0)
    options, _ = synchronisations(replace(cluster, topology=topology, nic=nic), problem.algorithms)
    silent = {_how(option): option for option in options}
    return {how: (option, silent[how]) for how, option in problem.costs.items()}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a plan won.

    Attributes
    ----------
    computation_ns : int
        Computation of the iteration, slowed down by transfers without start-ups.
    exposed_bytes_ns : int
        Exposed communication if start-ups were free.
    exposed_startup_ns : int
        Exposed communication that start-ups add.
    runner_up : Alternative or None
        The next best alternative of another cost.
    dominated_by : str or None
        An algorithm that dominates the runner-up's in the same mode, so that it never wins.
    changes : tuple of Change
        Changes that would make the runner-up shorter.
    timed_out : bool
        Whether time ran out before all changes were tried.
    """

    computation_ns: int
    exposed_bytes_ns: int
    exposed_startup_ns: int
    runner_up: Alternative | None
    dominated_by: str | None
    changes: tuple[Change, ...]
    timed_out: bool = False


def _used(plan: Plan) -> tuple[tuple[str, ...], Mode]:
    return plan.algorithms, plan.mode


def runner_up(plan: Plan, candidates: Iterable[Alternative]) -> Alternative | None:
    """Return the best alternative that is not the plan's own under another name.

    Alternatives by another algorithm and of another cost come first.
    """
    listed = [candidate for candidate in candidates if candidate.objective_ns is not None]
    # A plan for several scenarios belongs to one of these ways, but need not be its best plan.
    own = next(
        candidate
        for candidate in sorted(listed, key=lambda candidate: candidate.plan != plan)
        if (candidate.synchronisation.algorithm, candidate.mode) == (plan.way, plan.mode)
        or candidate.plan == plan
    )
    others = [
        candidate
        for candidate in listed
        if candidate.synchronisation.half != own.synchronisation.half
        and (candidate.plan is None or _used(candidate.plan) != _used(plan))
    ] or [candidate for candidate in listed if candidate.mode != own.mode]
    return min(others, key=lambda candidate: candidate.objective_ns or 0, default=None)


def explain(
    problem: Problem,
    plan: Plan,
    candidates: Iterable[Alternative],
    deadline: Deadline = NEVER,
    evaluation: Evaluation | None = None,
) -> Explanation:
    """Explain the choice of a plan among its alternatives.

    Parameters
    ----------
    problem : Problem
        The problem.
    plan : Plan
        The chosen plan.
    candidates : iterable of Alternative
        All alternatives.
    deadline : Deadline
        When to stop searching for changes.
    evaluation : Evaluation, optional
        The plan's evaluation, if known.
    """
    evaluation = evaluation or evaluate(problem, plan)
    # A shorter alternative was rejected for its cost in other scenarios: no change is needed.
    candidates = tuple(
        candidate
        for candidate in candidates
        if candidate.objective_ns is None
        or candidate.objective_ns >= evaluation.iteration_ns
        or (candidate.synchronisation.algorithm, candidate.mode) == (plan.way, plan.mode)
    )
    free_starts = partial(scaled_cost, startup=0)
    prompt = {how: option.changed(free_starts) for how, option in problem.costs.items()}
    free = evaluate(problem, plan, prompt)
    second = runner_up(plan, candidates)
    better = None if second is None else dominating(problem, second, candidates)
    found: tuple[Change, ...] = ()
    sought = second is not None and better is None
    if second is not None and sought:
        found = changes(problem, plan, second, candidates, deadline)
    return Explanation(
        computation_ns=free.computation_ns,
        exposed_bytes_ns=free.stall_ns,
        exposed_startup_ns=evaluation.iteration_ns - free.iteration_ns,
        runner_up=second,
        dominated_by=better,
        changes=found,
        timed_out=sought and len(found) < len(PARTS) and deadline.passed,
    )
