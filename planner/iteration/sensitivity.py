"""Sensitivity of the best plan and its time to the network's bandwidth and start-ups.

Method: bandwidths (NICs, links within hosts, the shared medium), or start-ups (steps, steps within
hosts, further messages), are multiplied by each factor. On each such cluster everything is planned
again, next to the unchanged plan, DDP and the lower bound. An algorithm is planned again only if
its bound is below all plans of `candidates` priced on that cluster.
Guarantee: those of `planner.iteration.alternatives`; `best` is never longer than `kept`.
Complexity: two bounds per algorithm and factor, and the planning of each algorithm that may still
win; at worst 2·(factors - 1) plannings, mostly a fifth of that.
Source: own.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import itemgetter
from typing import Literal

from planner.clusters import scaled_cluster
from planner.deadline import Deadline
from planner.errors import InvalidInputError
from planner.iteration.alternatives import Alternative, alternatives
from planner.iteration.bounds import bound
from planner.iteration.evaluation import evaluate
from planner.iteration.family import best_of, solve
from planner.iteration.plan import Mode, Plan
from planner.iteration.problem import Problem
from planner.iteration.room import too_small
from planner.iteration.ways import MIXED

__all__ = ["FACTORS", "Knob", "SweepPoint", "Sweeps", "sweep"]

Knob = Literal["bandwidth", "startup"]
"""The quantity that is changed."""

FACTORS = tuple(Fraction(2) ** power for power in range(-3, 4))
"""Default factors: 1/8 to 8."""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The iteration time on one changed network.

    Attributes
    ----------
    factor : Fraction
        Factor on the bandwidth or the start-up.
    best_ns : int
        With the best plan found there.
    algorithm : str
        Synchronisation algorithm of that plan.
    mode : {"replicated", "sharded"}
        Who updates the parameters in it.
    kept_ns : int
        With the plan that is best at factor 1.
    ddp_ns : int or None
        With DDP's default; None if it has no plan.
    bound_ns : int
        Lower bound over all plans under the op order of the plan.
    """

    factor: Fraction
    best_ns: int
    algorithm: str
    mode: Mode
    kept_ns: int
    ddp_ns: int | None
    bound_ns: int


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
    """Plan again with other bandwidths and other start-up costs.

    Parameters
    ----------
    problem : Problem
        The planned problem.
    candidates : sequence of Alternative
        All its alternatives.
    factors : iterable of Fraction
        Factors on bandwidth and start-up, each above 0.
    time_limit : float, optional
        Seconds of planning for each factor.
    progress : callable, optional
        Called with the task, its number, and the number of tasks.

    Returns
    -------
    Sweeps or None
        None if the problem has no plan.
    """
    kept = best_of(problem, candidates, 0.0).plan
    if kept is None:
        return None
    known = sorted(set(factors))

    def points(knob: Knob) -> Iterable[SweepPoint]:
        for place, factor in enumerate(known, start=1):
            if progress:
                progress(f"planning with another {knob}", place, len(known))
            try:
                changed_problem = replace(
                    problem, cluster=scaled_cluster(problem.cluster, **{knob: factor})
                )
                point = _point(changed_problem, kept, candidates, factor, time_limit)
            except InvalidInputError:  # times out of range: the problem itself was checked before
                if factor == 1:
                    raise
                continue
            yield point

    return Sweeps(tuple(points("bandwidth")), tuple(points("startup")))


def _point(
    problem: Problem,
    kept: Plan,
    candidates: Sequence[Alternative],
    factor: Fraction,
    time_limit: float | None,
) -> SweepPoint:
    """Plan for one cluster; `kept` and `candidates` were planned for another one."""
    priced = [(evaluate(problem, kept).iteration_ns, kept)]
    priced += [
        (evaluate(problem, candidate.plan).iteration_ns, candidate.plan)
        for candidate in candidates
        if candidate.plan is not None
    ]
    bounds = {
        (option.algorithm, mode): bound(problem, option, mode, kept)
        for option in problem.options
        for mode in problem.modes
        if too_small(problem, mode) is None and option.refusal(mode) is None
    }
    # If no mode's bound is below a known plan, planning again finds nothing better.
    shortest = min(time for time, _ in priced)
    unsettled = {name for (name, _), least in bounds.items() if least < shortest}
    names = [option.algorithm for option in problem.options if option.algorithm in unsettled]
    if names and factor != 1:
        anew = problem
        if len(names) < len(problem.options) and MIXED not in names:  # it takes all
            anew = replace(problem, algorithms=tuple(names))
        again = alternatives(anew, Deadline.of(time_limit))
        priced += [
            (alternative.objective_ns or 0, alternative.plan)
            for alternative in again
            if alternative.plan is not None
        ]
    best_ns, best = min(priced, key=itemgetter(0))
    return SweepPoint(
        factor=factor,
        best_ns=best_ns,
        algorithm=" + ".join(best.algorithms),
        mode=best.mode,
        kept_ns=priced[0][0],
        ddp_ns=_ddp(problem, time_limit),
        bound_ns=min(bounds.values()),
    )


def _ddp(problem: Problem, time_limit: float | None) -> int | None:
    try:
        return solve(problem, method="ddp", time_limit=time_limit).objective_ns
    except InvalidInputError:  # DDP does not apply here
        return None
