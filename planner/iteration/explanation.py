"""Why a plan won: where its time goes, and what would have to change for the next one to win.

Problem: a plan is the best of several. What does its time consist of, and how far is the choice
from another one?

Method. Where the time goes: the computation; what is waited for beyond it if start-ups were free;
what the start-ups add. All three are differences of prices of the same plan.

What would have to change: both plans are kept as they are and priced with all start-up costs,
or with the speed of everything, multiplied by a factor up to 1024 either way; the factor nearest to
1 at which the other is shorter is found by bisection. Planned anew, either could do better there.

Guarantee: the parts add up to the iteration; at the factor that is named the other plan is shorter.

Complexity: some 60 prices a change. Source: own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from planner.costs import AffineCost
from planner.iteration.alternatives import Alternative
from planner.iteration.evaluation import evaluate
from planner.iteration.problem import Plan, Problem
from planner.iteration.synchronisation import Synchronisation
from planner.validation import MAX_VALUE

__all__ = ["Change", "Explanation", "explain", "runner_up"]

FACTOR_BITS = 10
"""Factors up to 2^10 either way are tried."""

ROUNDS = 10
"""Halvings of the interval of factors: three digits."""


@dataclass(frozen=True, slots=True)
class Change:
    """What would make another plan the shorter one.

    Attributes
    ----------
    what : {"startup", "bandwidth"}
        What changes.
    factor : float
        By what it is multiplied.
    """

    what: Literal["startup", "bandwidth"]
    factor: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a plan won.

    Attributes
    ----------
    computation_ns : int
        Computation of the iteration.
    exposed_bytes_ns : int
        What it waits beyond that if start-ups were free.
    exposed_startup_ns : int
        What start-ups add.
    runner_up : Alternative or None
        The next best way that costs something else.
    changes : tuple of Change
        What would make it the shorter one.
    """

    computation_ns: int
    exposed_bytes_ns: int
    exposed_startup_ns: int
    runner_up: Alternative | None
    changes: tuple[Change, ...]


def runner_up(plan: Plan, found: Iterable[Alternative]) -> Alternative | None:
    """Return the best alternative that is not the plan's own under another name.

    One by another algorithm comes first, if there is one that costs something else.
    """
    listed = [one for one in found if one.objective_ns is not None]
    own = next(
        one
        for one in listed
        if (one.synchronisation.algorithm, one.mode) == (plan.algorithm, plan.mode)
    )
    others = [one for one in listed if one.synchronisation.half != own.synchronisation.half] or [
        one for one in listed if one.mode != own.mode
    ]
    return min(others, key=lambda one: one.objective_ns or 0, default=None)


def explain(problem: Problem, plan: Plan, found: Iterable[Alternative]) -> Explanation:
    """Explain the choice of a plan among the alternatives it was chosen from.

    Parameters
    ----------
    problem : Problem
        The problem.
    plan : Plan
        The one chosen.
    found : iterable of Alternative
        All of them.
    """
    own = problem.synchronisation(plan.algorithm)
    evaluation = evaluate(problem, plan)
    free = evaluate(problem, plan, _changed(own, Fraction(0), Fraction(1))).iteration_ns
    other = runner_up(plan, found)
    changes: tuple[Change, ...] = ()
    if other is not None and other.plan is not None:
        changes = tuple(_changes(problem, plan, other.plan))
    return Explanation(
        computation_ns=evaluation.computation_ns,
        exposed_bytes_ns=free - evaluation.computation_ns,
        exposed_startup_ns=evaluation.iteration_ns - free,
        runner_up=other,
        changes=changes,
    )


def _changes(problem: Problem, plan: Plan, other: Plan) -> Iterable[Change]:
    def wins(startup: Fraction, bandwidth: Fraction) -> bool:
        first, second = (
            evaluate(
                problem,
                one,
                _changed(problem.synchronisation(one.algorithm), startup, bandwidth),
            ).iteration_ns
            for one in (plan, other)
        )
        return second < first

    one = Fraction(1)
    knobs: tuple[tuple[Literal["startup", "bandwidth"], Callable[[Fraction], bool]], ...] = (
        ("startup", lambda factor: wins(factor, one)),
        ("bandwidth", lambda factor: wins(one, factor)),
    )
    for what, better in knobs:
        factor = _nearest(better)
        if factor is not None:
            yield Change(what, float(factor))


def _nearest(better: Callable[[Fraction], bool]) -> Fraction | None:
    """Return the factor nearest to 1, on a logarithmic scale, at which something is better.

    Where what is better changes more than once, it is one of the first power of two that is.
    """
    for power in range(1, FACTOR_BITS + 1):
        found = []
        for way in (Fraction(2), Fraction(1, 2)):
            near, far = way ** (power - 1), way**power
            if not better(far):
                continue
            for _ in range(ROUNDS):
                middle = (near + far) / 2
                near, far = (near, middle) if better(middle) else (middle, far)
            found.append(far)
        if found:
            return min(found, key=lambda factor: max(factor, 1 / factor))
    return None


def _changed(
    synchronisation: Synchronisation, startup: Fraction, bandwidth: Fraction
) -> Synchronisation:
    """Return what transfers cost with other start-ups and speeds."""
    half = synchronisation.half
    changed = AffineCost(
        min(round(half.startup_ns * startup), MAX_VALUE // 2),  # an all-reduce takes two of them
        min(half.ns_per_byte / bandwidth, Fraction(MAX_VALUE, 2)),
    )
    return replace(synchronisation, half=changed)
