"""Sensitivity of the best plan and its time to the network's bandwidth and start-ups.

Method: bandwidths (NICs, links within hosts, the shared medium), or start-ups (steps, steps within
hosts, further messages), are multiplied by each factor. On each such cluster everything is planned
again, next to the unchanged plan, DDP and the lower bound. An algorithm is planned again only if
its bound is below all plans of `candidates` priced on that cluster.
Guarantee: those of `planner.families.iteration.alternatives`; `best` is never longer than `kept`.
Complexity: two bounds per algorithm and factor, and the planning of each algorithm that may still
win; at worst 2·(factors - 1) plannings, mostly a fifth of that.
Source: own.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal, TypeAlias

from planner.families.iteration.alternatives import Alternative, alternatives
from planner.families.iteration.bounds import bound
from planner.families.iteration.family import ITERATION, best_of
from planner.families.iteration.plan import MIXED, Plan
from planner.families.iteration.problem import Problem
from planner.families.iteration.transfers import limit_infeasible
from planner.solving.deadline import Deadline
from planner.solving.scenarios import Scenario
from planner.solving.what_if import DDP, Planned, Regret, regrets

Knob = Literal["bandwidth", "startup"]
"""The field of a `Scenario` that is the factor."""

FACTORS = tuple(Fraction(2) ** power for power in range(-3, 4))
"""Factors of a sweep, if no others are given: 1/8 to 8."""

SweepPoint: TypeAlias = Regret[Plan]
"""The iteration time on one changed network."""


@dataclass(frozen=True, slots=True)
class Sweeps:
    """Both sweeps, by rising factor; factors that lead out of the range of times are left out."""

    bandwidth: tuple[SweepPoint, ...]
    startup: tuple[SweepPoint, ...]


def sweep(
    problem: Problem,
    candidates: Sequence[Alternative],
    factors: Iterable[Fraction] = FACTORS,
    *,
    time_limit: float | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Sweeps | None:
    """Plan again with other bandwidths and other start-up costs; None if the problem has no plan.

    `candidates` are all alternatives of the planned problem, `factors` those on bandwidth and
    start-up, each above 0. `time_limit` is in seconds of planning for each factor. `progress` is
    called with the task, its number, and the number of tasks.
    """
    kept = best_of(problem, candidates, 0.0).plan
    if kept is None:
        return None
    listed = sorted(set(factors))
    others = [candidate.plan for candidate in candidates if candidate.plan is not None]

    def points(knob: Knob) -> Iterable[SweepPoint]:
        for place, factor in enumerate(listed, start=1):
            if progress:
                progress(f"planning with another {knob}", place, len(listed))
            changed: dict[str, Any] = {knob: factor}
            yield from regrets(
                ITERATION,
                problem,
                kept,
                Deadline.of(time_limit),
                scenarios=(Scenario(**changed),),
                known=others,
                again=partial(_again, kept, new=factor != 1),
                rules=(DDP,),
            )

    return Sweeps(tuple(points("bandwidth")), tuple(points("startup")))


def _again(
    kept: Plan, problem: Problem, least_ns: int, limit: Deadline, *, new: bool
) -> Planned[Plan]:
    """Return plans by the algorithms whose bound is below the least cost, and the least bound."""
    bounds = {
        (option.algorithm, mode): bound(problem, option, mode, kept)
        for option in problem.options
        for mode in problem.modes
        if limit_infeasible(problem, mode) is None and option.refusal(mode) is None
    }
    # Where every mode's bound is at least the known time, planning again finds nothing better.
    unsettled = {name for (name, _), below in bounds.items() if below < least_ns}
    names = [option.algorithm for option in problem.options if option.algorithm in unsettled]
    again: Iterable[Alternative] = ()
    if names and new:
        anew = problem
        if len(names) < len(problem.options) and MIXED not in names:  # it takes all
            anew = replace(problem, algorithms=tuple(names))
        again = alternatives(anew, limit)
    plans = [alternative.plan for alternative in again if alternative.plan is not None]
    return [(ITERATION.price(problem, plan), plan) for plan in plans], min(bounds.values())
