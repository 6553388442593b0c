"""Explain a plan: where its time goes, and what would make the runner-up win.

Method: three parts of the iteration: computation; the exposed communication if start-ups and
further messages were free; and what these add. All are differences of prices of the same plan.
`changes` finds the changes that make the runner-up win.
Guarantee: the parts add up to the iteration.
Complexity: two prices, and those of the crossover.
Source: own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Literal

from planner.families.iteration.alternatives import Alternative
from planner.families.iteration.evaluation import Evaluation, evaluate, lasting
from planner.families.iteration.plan import (
    MIXED,
    How,
    MixedAlgorithms,
    Mode,
    Plan,
    Synchronisation,
    Way,
)
from planner.families.iteration.problem import Problem
from planner.model.costs import AffineCost, TableCost, scaled_cost
from planner.model.validation import MAX_VALUE
from planner.solving.deadline import NEVER, Deadline
from planner.solving.what_if import break_even

# ---
# Break-even factors: the change of the network at which the runner-up plan wins.
#
# Problem: start-ups, further messages or bandwidth of all algorithms are multiplied by one factor,
# up to 1024 either way. Find the factor nearest to 1 at which the runner-up wins. Method:
# bisection. The runner-up *wins* if it is shorter than the chosen plan, both with the same
# transfers and algorithms, each at its best depth; and no other algorithm of its mode would be
# shorter with its transfers. Guarantee: at that factor the runner-up wins in this sense; planning
# again, either plan could improve. Complexity: one price of a plan for each algorithm, about 60
# times per change. Source: own.

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


def _scaled(option: Synchronisation, what: CostPart, factor: Fraction) -> Synchronisation:
    """Return an option with one part of its costs multiplied; a table has no further messages."""
    startup = factor if what == "startup" else Fraction(1)
    rate = 1 / factor if what == "bandwidth" else Fraction(1)

    def scaled(cost: AffineCost | TableCost, messages: int) -> AffineCost | TableCost:
        if isinstance(cost, TableCost):
            return scaled_cost(cost, startup=startup, rate=rate, most_ns=MAX_VALUE)
        time = (cost.startup_ns - messages) * startup
        time += messages * (factor if what == "message" else 1)
        per_byte = min(cost.ns_per_byte * rate, Fraction(MAX_VALUE))
        return AffineCost(min(round(time), MAX_VALUE), per_byte)

    half, both = option.messages_ns
    return replace(
        option,
        half=scaled(option.half, half),
        whole=scaled(option.all_reduce, both),
        gather=None if option.gather is None else scaled(option.gather, half),
    )


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
    lasts, own = lasting(problem, plan), lasting(problem, alternative.plan)
    rivals = [lasting(problem, other) for other in _by_rivals(alternative, candidates)]

    def wins(what: CostPart, factor: Fraction) -> bool:
        costs = _at_any_depth(_scaled(option, what, factor) for option in problem.single)
        least = own(costs)
        return least < lasts(costs) and all(least <= rival(costs) for rival in rivals)

    nearest = [(what, break_even(partial(wins, what), deadline)) for what in PARTS]
    return tuple(Change(what, float(factor)) for what, factor in nearest if factor is not None)


def _at_any_depth(options: Iterable[Synchronisation]) -> Mapping[How, Way]:
    """Return for each option its algorithm with the cheapest depth for each size."""
    several = (tuple(same) for _, same in groupby(options, attrgetter("algorithm")))
    return {
        (option.algorithm, option.depth): MixedAlgorithms(option.algorithm, same)
        if same[1:]
        else option
        for same in several
        for option in same
    }


def _by_rivals(alternative: Alternative, candidates: Sequence[Alternative]) -> Iterator[Plan]:
    """Yield the alternative's plan by each other algorithm that has a plan in its mode.

    A mixture of algorithms is no rival, and has none.
    """
    plan, name = alternative.plan, alternative.synchronisation.algorithm
    assert plan is not None
    for other in candidates:
        rival = other.synchronisation.algorithm
        if MIXED in (name, rival) or rival == name or other.plan is None:
            continue
        if other.mode == alternative.mode:
            depth = other.synchronisation.options[0].depth
            sent = (replace(each, algorithm=None, depth=depth) for each in plan.transfers)
            yield replace(plan, algorithm=rival, transfers=tuple(sent))


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
    changes : tuple of Change
        Changes that would make the runner-up shorter.
    timed_out : bool
        Whether time ran out before all changes were tried.
    """

    computation_ns: int
    exposed_bytes_ns: int
    exposed_startup_ns: int
    runner_up: Alternative | None
    changes: tuple[Change, ...]
    timed_out: bool = False


def _used(plan: Plan) -> tuple[tuple[str, ...], Mode]:
    return plan.algorithms, plan.mode


def runner_up(plan: Plan, candidates: Iterable[Alternative]) -> Alternative | None:
    """Return the best alternative that differs from the plan's own.

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
    found = () if second is None else changes(problem, plan, second, candidates, deadline)
    return Explanation(
        computation_ns=free.computation_ns,
        exposed_bytes_ns=free.stall_ns,
        exposed_startup_ns=evaluation.iteration_ns - free.iteration_ns,
        runner_up=second,
        changes=found,
        timed_out=second is not None and len(found) < len(PARTS) and deadline.passed,
    )
