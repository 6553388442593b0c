"""How the best plan changes with one number of a problem, and where another plan overtakes it.

Problem: the speed of a network, the cost of a start-up, or the time of computation is rarely known
well. What does a plan cost at other values, beside the best plan for them (`sensitivity`)? At which
factor does another plan win (`break_even`)?
Method: for each factor of one field of a `Scenario` the known plans are priced, and a new one is
made. A break-even factor is searched for among powers of two around 1, then by bisection.
Guarantee: ``bound_ns <= best_ns <= kept_ns`` at every factor. The break-even factor is the nearest
one if the comparison changes once on each side of 1.
Complexity: a run of ``auto`` and of DDP for each factor; at most `FACTOR_BITS` + `ROUNDS`
comparisons on each side of 1 for a break-even factor. Source: own.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from typing import Any, Generic, Literal, TypeAlias

from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.result import EvaluationT, PlanT, ProblemT
from planner.solving.scenarios import Scenario

Knob = Literal["computation", "startup", "bandwidth"]
"""The field of a `Scenario` that is the factor."""

FACTORS = tuple(Fraction(2) ** power for power in range(-3, 4))
"""Factors of a sweep, if no others are given: 1/8 to 8."""

FACTOR_BITS = 10
"""Break-even factors up to 2^10 either way are found."""

ROUNDS = 10
"""Halvings of the interval of factors: three digits."""

Planned: TypeAlias = tuple[Iterable[PlanT], int | None]
"""New plans for a problem, and a lower bound (ns) over all plans; None if unknown."""


@dataclass(frozen=True, slots=True)
class SensitivityPoint(Generic[PlanT]):
    """What plans cost at one factor.

    Attributes
    ----------
    factor : Fraction
        What the number was multiplied by.
    best : PlanT
        The best plan found at this factor.
    best_ns : int
        Its cost; at most `kept_ns`.
    kept_ns : int or None
        Cost of the kept plan; None if it breaks a constraint there.
    ddp_ns : int or None
        Cost of DDP's default; None where it does not apply.
    bound_ns : int or None
        Lower bound over all plans; at most `best_ns`. None if unknown.
    """

    factor: Fraction
    best: PlanT
    best_ns: int
    kept_ns: int | None
    ddp_ns: int | None
    bound_ns: int | None


def sensitivity(
    family: Family[ProblemT, PlanT, EvaluationT],
    problem: ProblemT,
    kept: PlanT,
    knob: Knob,
    factors: Iterable[Fraction],
    deadline: Deadline,
    *,
    known: Iterable[PlanT] = (),
    again: Callable[[ProblemT, int | None, Deadline], Planned[PlanT]] | None = None,
) -> tuple[SensitivityPoint[PlanT], ...]:
    """Return the cost of the kept and of the best plan for each factor of one number.

    Parameters
    ----------
    family : Family
        The family of the problem.
    problem : Problem
        What `kept` was made for.
    kept : Plan
        The plan.
    knob : {"computation", "startup", "bandwidth"}
        What is multiplied.
    factors : iterable of Fraction
        Factors above 0; each has an equal share of the time left.
    deadline : Deadline
        When to stop; factors for which no time is left are left out.
    known : iterable of Plan
        More plans that are priced at every factor.
    again : callable, optional
        Returns new plans for a changed problem and a bound, given the least cost known; by default
        the plan and the bound of ``auto``.

    Returns
    -------
    tuple of SensitivityPoint
        In rising order of the factor, each once. Factors that make a number too large, and those
        at which there is no plan, are left out.

    Raises
    ------
    NotApplicableError
        If the family has no such number.
    InvalidInputError
        If a factor is no number above 0.
    """
    points, listed, plans = [], sorted(set(factors)), [kept, *known]
    for place, factor in enumerate(listed):
        if deadline.passed:
            break
        limit = deadline.share(len(listed) - place)
        changed: dict[str, Any] = {knob: factor}
        scenario = Scenario(**changed)
        try:
            other = family.perturb(problem, scenario)
            point = _point(family, other, factor, plans, again, limit)
        except NotApplicableError:
            raise
        except InvalidInputError:  # a number is too large: that of the problem itself is not
            if factor == 1:
                raise
            continue
        if point is not None:
            points.append(point)
    return tuple(points)


def _point(
    family: Family[ProblemT, PlanT, EvaluationT],
    problem: ProblemT,
    factor: Fraction,
    plans: Iterable[PlanT],
    again: Callable[[ProblemT, int | None, Deadline], Planned[PlanT]] | None,
    limit: Deadline,
) -> SensitivityPoint[PlanT] | None:
    """Return the costs of plans in a changed problem, the kept plan first; None without any."""

    def priced_plans(plans: Iterable[PlanT]) -> Iterator[tuple[int, PlanT]]:
        for plan in plans:
            with suppress(InvalidPlanError):  # such as one that breaks a constraint there
                here = family.repriced(problem, plan)
                yield family.price(problem, here), here

    first, *others = plans
    priced = list(priced_plans([first]))
    kept_ns = priced[0][0] if priced else None
    priced += priced_plans(others)
    least = min((time for time, _ in priced), default=None)
    bound: int | None
    if again is None:
        result = family.solve(problem, time_limit=limit)
        bound = result.lower_bound_ns
        if result.plan is not None and result.objective_ns is not None:
            priced.append((result.objective_ns, result.plan))
    else:
        made, bound = again(problem, least, limit)
        priced += priced_plans(made)
    if not priced:
        return None
    best_ns, best = min(priced, key=itemgetter(0))
    ddp_ns = None
    if "ddp" in family.methods_for(problem):
        with suppress(InvalidInputError):  # it does not apply here
            ddp_ns = family.solve(problem, method="ddp", time_limit=limit).objective_ns
    bound = None if bound is None else min(bound, best_ns)
    return SensitivityPoint(factor, best, best_ns, kept_ns, ddp_ns, bound)


def break_even(better: Callable[[Fraction], bool], deadline: Deadline) -> Fraction | None:
    """Return the factor nearest to 1, on a logarithmic scale, at which another plan is better.

    Parameters
    ----------
    better : callable
        Returns whether the other plan is better at a factor.
    deadline : Deadline
        When to give up.

    Returns
    -------
    Fraction or None
        None if none is found within 2^10 either way, or in time. Where the comparison changes more
        than once, a factor up to the first power of two at which the other plan is better.
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
