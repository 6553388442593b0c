"""Batches for several scenarios at once: the least mean, or percentile, of the makespan.

Problem: times are not known, but scenarios and their weights are. One plan is made for all.

Method: the exact batches of every scenario, and those if transfers or computation took a fifth
longer, every rule's, and about equal ones in several numbers are priced in all scenarios; of up to
`ENUMERATED` layers all there are. The best is improved by local search: a boundary more, less, or
moved by a layer. By the numbers as they are no plan may last more than `planner.scenarios.MOST`
times as long as the best for them.

Guarantee: never worse, by what counts, than the plan for the numbers as they are; of up to
`ENUMERATED` layers the best that keeps to `MOST`, unless a time limit cuts in. The bound is what
counts of the scenarios' own bounds: neither the mean nor a percentile falls if a time rises.

Complexity: one exact method a scenario, and a fixed budget of prices. Source: own.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import chain, combinations

from planner.bucketing import BUCKET_COUNTS
from planner.deadline import Cancel, Deadline
from planner.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.ibatch.evaluation import Evaluation, check, evaluate, objective_ns
from planner.ibatch.problem import Plan, Problem
from planner.ibatch.scenarios import under
from planner.ibatch.solver import RULES, priced, solve
from planner.methods import Outcome, deadline_in
from planner.results import Result
from planner.scenarios import LONGER, MOST, Outlook, Prospect
from planner.validation import inside

__all__ = ["ENUMERATED", "solve_for"]

ENUMERATED = 8
"""Up to so many layers all plans are priced: 128 of eight."""

PRICES = 2 * 10**5
"""Batches whose times the local search works out, in all scenarios together."""

LEAST_SECONDS = 0.001
"""What the planning for each scenario gets at least."""


def solve_for(
    problem: Problem,
    outlook: Outlook,
    *,
    time_limit: float | None = None,
    cancel: Cancel | None = None,
) -> tuple[Result[Plan, Evaluation], Prospect | None]:
    """Choose batches for several scenarios.

    Parameters
    ----------
    problem : Problem
        With the numbers as they are; its objective is the makespan, and it has no target.
    outlook : Outlook
        The scenarios.
    time_limit : float, optional
        Seconds after which the best plan so far is returned.
    cancel : Cancel, optional
        Does the same.

    Returns
    -------
    result : Result
        The plan, judged by the numbers as they are; or why there is none.
    prospect : Prospect or None
        What it costs in the scenarios.

    Raises
    ------
    InvalidInputError
        If the numbers of a scenario are too large, or the objective is another one.
    """
    if problem.objective != "makespan":
        raise InvalidInputError("objective", "scenarios are planned for by the makespan")
    begin, deadline = time.perf_counter(), deadline_in(time_limit, cancel)
    count = len(outlook.scenarios) + len(LONGER) + 1
    usual = solve(problem, time_limit=_share(deadline, count), cancel=deadline.cancel)
    if usual.plan is None or usual.objective_ns is None:
        return usual, None
    variants = []
    for place, (scenario, _) in enumerate(outlook.scenarios):
        with inside(f"scenarios[{place}]"):
            variants.append(under(problem, scenario))
    made: list[Plan] = []
    bounds = [0] * len(variants)
    for place, variant in enumerate(variants):
        if deadline.passed:
            break
        own = solve(variant, time_limit=_share(deadline, count - place - 1), cancel=deadline.cancel)
        bounds[place] = own.lower_bound_ns or 0
        if own.plan is not None:
            made.append(own.plan)
    most_ns = MOST * usual.objective_ns

    def value(plan: Plan) -> Fraction | None:
        """Return what counts of a plan's times; None if it is none, or lasts too long."""
        try:
            check(problem, plan)
        except InvalidPlanError:
            return None
        if _lasts(problem, plan) > most_ns:
            return None
        return outlook.of([_lasts(variant, plan) for variant in variants])

    start = value(usual.plan)
    assert start is not None
    bound = outlook.of(bounds)
    best, least, seen = usual.plan, start, {usual.plan}
    left = PRICES // (len(variants) * problem.layers)

    def better(others: Iterable[Plan]) -> bool:
        """Take the best of other plans if it is better, and return whether it is."""
        nonlocal best, least, left
        before = best
        for plan in others:
            if deadline.passed or left <= 0:
                break
            if plan in seen:
                continue
            seen.add(plan)
            left -= 1
            counts = value(plan)
            if counts is not None and counts < least:
                best, least = plan, counts
        return best is not before

    if least > bound:
        better(chain(made, _candidates(problem, deadline)))
        while least > bound and better(_neighbours(problem, best)):
            pass
    outcome = Outcome(best, usual.lower_bound_ns, deadline.passed, method=usual.method)
    result = priced(problem, outcome, time.perf_counter() - begin)
    return result, Prospect(least, bound, usual.objective_ns, start)


def _lasts(problem: Problem, plan: Plan) -> int:
    return objective_ns(problem, evaluate(problem, plan))


def _share(deadline: Deadline, count: int) -> float | None:
    left = deadline.remaining_s
    return None if left is None else max(left / (count + 1), LEAST_SECONDS)


def _candidates(problem: Problem, deadline: Deadline) -> Iterator[Plan]:
    """Yield plans that may bear more, and every plan of few layers."""
    for scenario in LONGER:
        if deadline.passed:
            return
        with suppress(InvalidInputError):  # whose numbers are too large
            plan = solve(
                under(problem, scenario), time_limit=_share(deadline, 1), cancel=deadline.cancel
            ).plan
            if plan is not None:
                yield plan
    for rule in RULES.values():
        with suppress(NotApplicableError):
            plan = rule(problem, deadline).plan
            if plan is not None:
                yield plan
    count = problem.layers
    for number in BUCKET_COUNTS:
        if number < count:
            yield problem.plan([place * count // number for place in range(number + 1)])
    if count <= ENUMERATED:
        for size in range(count):
            for inner in combinations(range(1, count), size):
                yield problem.plan((0, *inner, count))


def _neighbours(problem: Problem, plan: Plan) -> Iterator[Plan]:
    """Yield plans with a boundary more, less, or moved by a layer."""
    count = problem.layers
    known = {start for start, _ in plan.batches} - {0}
    for place in range(1, count):
        changed = [known ^ {place}]
        if place in known:
            moved = (place - 1, place + 1)
            changed += [
                known - {place} | {to} for to in moved if 0 < to < count and to not in known
            ]
        for inner in changed:
            yield problem.plan((0, *sorted(inner), count))
