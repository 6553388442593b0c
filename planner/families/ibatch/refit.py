"""Warm start (`refit`): adapt an old plan to a problem with other numbers, in milliseconds.

Method: where costs add up, run the exact method. Otherwise local search: move a boundary by a
layer, remove it, or split a batch in the middle, as long as that helps.
Guarantee: never worse than the old plan. Complexity: about `WORK` batches priced. Source: own.
"""

from collections.abc import Iterator
from itertools import pairwise

from planner.families.ibatch.evaluation import (
    boundaries_of,
    check,
    evaluate,
    lasts_under,
    objective_ns,
)
from planner.families.ibatch.makespan import solve_additive
from planner.families.ibatch.problem import Plan, Problem
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome
from planner.solving.robustness import NOMINAL

WORK = 10_000
"""Batches priced by the local search, approximately."""


def refit(problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
    """Return an old plan improved for the problem; raise `InvalidPlanError` if it does not fit."""
    check(problem, plan)
    if problem.objective != "makespan" or not problem.interference.is_none:
        return Outcome(plan)
    if problem.target is not None:
        return Outcome(plan)
    if problem.transfer_prefix is not None:
        return solve_additive(problem, deadline)
    best = boundaries_of(plan)
    value, left = lasts_under(problem, best, NOMINAL), WORK
    improving = True
    while improving and left > 0 and not deadline.passed:
        improving = False
        for changed in _changes(problem, best):
            left -= len(changed)
            price = lasts_under(problem, changed, NOMINAL)
            if price < value:
                best, value, improving = changed, price, True
                break
            if left <= 0 or deadline.passed:
                break
    made = problem.plan(best)
    better = objective_ns(problem, evaluate(problem, made)) < objective_ns(
        problem, evaluate(problem, plan)
    )
    return Outcome(made if better else plan)


def _changes(problem: Problem, cuts: list[int]) -> Iterator[list[int]]:
    """Yield boundaries that differ in one place and respect the cap."""
    for changed in _near(cuts):
        if all(stop <= problem.reach(start) for start, stop in pairwise(changed)):
            yield changed


def _near(cuts: list[int]) -> Iterator[list[int]]:
    for place in range(1, len(cuts) - 1):
        before, cut, after = cuts[place - 1 : place + 2]
        yield [*cuts[:place], *cuts[place + 1 :]]
        for moved in (cut - 1, cut + 1):
            if before < moved < after:
                yield [*cuts[:place], moved, *cuts[place + 1 :]]
    for place in range(len(cuts) - 1):
        middle = (cuts[place] + cuts[place + 1]) // 2
        if middle > cuts[place]:
            yield [*cuts[: place + 1], middle, *cuts[place + 1 :]]
