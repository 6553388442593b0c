"""What would have to change for another plan to win.

Problem: a plan is the best of several. On which other network would the runner-up be?

Method. A half of an all-reduce costs, for x bytes, start-ups + further messages + x / speed. One of
the three is multiplied, for all algorithms, by a factor up to 1024 either way. The runner-up *wins*
where, both plans kept as they are, it is shorter than the plan chosen, and no algorithm that can be
used in its mode costs less for some size and no more for any (then the runner-up's own plan is as
short with that algorithm). The factor nearest to 1 at which it wins is found by bisection.

Guarantee: at the factor that is named the runner-up wins in this sense; planned anew, either plan
could do better there. An algorithm that is said to dominate the runner-up's does so whatever the
three are multiplied by, so that the runner-up is never the best way.

Complexity: O(algorithms) and two prices of a plan, each of some 60 times a change. Source: own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Literal

from planner.clusters import Cluster
from planner.costs import AffineCost
from planner.deadline import NEVER, Deadline
from planner.iteration.alternatives import Alternative
from planner.iteration.evaluation import lasting
from planner.iteration.problem import Plan, Problem
from planner.iteration.synchronisation import synchronisations
from planner.topologies import Rails
from planner.validation import MAX_VALUE

__all__ = ["Change", "changes", "dominating"]

FACTOR_BITS = 10
"""Factors up to 2^10 either way are tried."""

ROUNDS = 10
"""Halvings of the interval of factors: three digits."""

CostPart = Literal["startup", "message", "bandwidth"]

PARTS: tuple[CostPart, ...] = ("startup", "message", "bandwidth")


@dataclass(frozen=True, slots=True)
class Change:
    """What would make another plan the better one.

    Attributes
    ----------
    what : {"startup", "message", "bandwidth"}
        What changes: the start-up of a step, what each further message costs, or all speeds.
    factor : float
        By what it is multiplied.
    """

    what: CostPart
    factor: float


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a half of an all-reduce costs: ns of start-ups and of further messages, ns a byte."""

    startup: int
    message: int
    per_byte: Fraction

    def scaled(self, what: CostPart, factor: Fraction) -> AffineCost:
        """Return the cost if one part were multiplied."""
        startup = self.startup * (factor if what == "startup" else 1)
        message = self.message * (factor if what == "message" else 1)
        per_byte = self.per_byte / (factor if what == "bandwidth" else 1)
        return AffineCost(
            min(round(startup + message), MAX_VALUE // 2),  # an all-reduce takes two of them
            min(per_byte, Fraction(MAX_VALUE, 2)),
        )


def dominating(
    problem: Problem, alternative: Alternative, candidates: Sequence[Alternative]
) -> str | None:
    """Return an algorithm that costs no more than the alternative's in any part, less in one.

    Parameters
    ----------
    problem : Problem
        The problem.
    alternative : Alternative
        The alternative.
    candidates : sequence of Alternative
        All of them.
    """
    parts = _parts(problem, candidates)
    mine = parts[alternative.synchronisation.algorithm]
    for algorithm in _usable(alternative, candidates):
        cost = parts[algorithm]
        no_more = (
            cost.startup <= mine.startup
            and cost.message <= mine.message
            and cost.per_byte <= mine.per_byte
        )
        if no_more and cost != mine:
            return algorithm
    return None


def changes(
    problem: Problem,
    plan: Plan,
    alternative: Alternative,
    candidates: Sequence[Alternative],
    deadline: Deadline = NEVER,
) -> tuple[Change, ...]:
    """Return what would make an alternative the better one, each change by itself.

    Parameters
    ----------
    problem : Problem
        The problem.
    plan : Plan
        The plan chosen.
    alternative : Alternative
        The alternative, with a plan.
    candidates : sequence of Alternative
        All of them.
    deadline : Deadline
        Changes that are not known then are left out.
    """
    assert alternative.plan is not None
    rivals, parts = _usable(alternative, candidates), _parts(problem, candidates)
    chosen, runner_up = parts[plan.algorithm], parts[alternative.plan.algorithm]
    lasts, other_lasts = lasting(problem, plan), lasting(problem, alternative.plan)

    def wins(what: CostPart, factor: Fraction) -> bool:
        own = runner_up.scaled(what, factor)
        if any(_undercuts(parts[rival].scaled(what, factor), own) for rival in rivals):
            return False
        return other_lasts(own) < lasts(chosen.scaled(what, factor))

    nearest = [(what, _nearest(partial(wins, what), deadline)) for what in PARTS]
    return tuple(Change(what, float(factor)) for what, factor in nearest if factor is not None)


def _usable(alternative: Alternative, candidates: Sequence[Alternative]) -> tuple[str, ...]:
    """Return the algorithms that have a plan in the alternative's mode."""
    return tuple(
        candidate.synchronisation.algorithm
        for candidate in candidates
        if candidate.mode == alternative.mode and candidate.plan is not None
    )


def _undercuts(first: AffineCost, second: AffineCost) -> bool:
    no_more = first.startup_ns <= second.startup_ns and first.ns_per_byte <= second.ns_per_byte
    return no_more and first != second


def _parts(problem: Problem, candidates: Sequence[Alternative]) -> Mapping[str, _Parts]:
    """Return the parts of what each algorithm costs, found by leaving start-ups away."""
    silent, _ = synchronisations(_without_startups(problem.cluster), problem.algorithms)
    messages = {option.algorithm: option.half.startup_ns for option in silent}
    return {
        option.algorithm: _Parts(
            option.half.startup_ns - messages[option.algorithm],
            messages[option.algorithm],
            Fraction(option.half.ns_per_byte),
        )
        for option in (alternative.synchronisation for alternative in candidates)
    }


def _without_startups(cluster: Cluster) -> Cluster:
    topology = cluster.topology
    if isinstance(topology, Rails):
        topology = replace(topology, link_startup_ns=0)
    return replace(cluster, topology=topology, nic=replace(cluster.nic, startup_ns=0))


def _nearest(better: Callable[[Fraction], bool], deadline: Deadline) -> Fraction | None:
    """Return the factor nearest to 1, on a logarithmic scale, at which something is better.

    Where what is better changes more than once, it is one of the first power of two that is.
    """
    for power in range(1, FACTOR_BITS + 1):
        factors = []
        for way in (Fraction(2), Fraction(1, 2)):
            if deadline.passed:
                return None
            near, far = way ** (power - 1), way**power
            if not better(far):
                continue
            for _ in range(ROUNDS):
                middle = (near + far) / 2
                near, far = (near, middle) if better(middle) else (middle, far)
            factors.append(far)
        if factors:
            return min(factors, key=lambda factor: max(factor, 1 / factor))
    return None
