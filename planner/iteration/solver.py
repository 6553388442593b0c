"""The methods by name, and the way every plan takes: made, checked, priced, bounded.

Problem: which plan of a whole iteration, by which method? `auto` is the joint plan: the best of all
`alternatives`. The other methods are what one family by itself, or a system one would use instead,
does on the same cluster (`planner.iteration.rules`).

Guarantee: unless a time limit cuts in, `auto` is never longer than any other method's plan. The
bound is the least over every algorithm the cluster allows and the modes that are asked for, however
transfers are cut, grouped and ordered, for the op order of the plan.

Complexity: that of `alternatives`, or of the method. Source: own.
"""

import time
from collections.abc import Callable, Iterable

from planner.costs import AffineCost
from planner.errors import BrokenConstraintError, NotApplicableError
from planner.iteration.alternatives import Alternative, alternatives
from planner.iteration.bounds import bound
from planner.iteration.checker import check, check_room, check_times
from planner.iteration.evaluation import evaluate
from planner.iteration.problem import Plan, Problem
from planner.iteration.room import too_many, too_small
from planner.iteration.rules import RULES
from planner.iteration.synchronisation import undominated
from planner.methods import deadline_in, known_method, plan_of_method
from planner.results import Infeasibility, Result
from planner.validation import total

__all__ = ["METHODS", "best_of", "solve"]

METHODS: tuple[str, ...] = ("auto", *RULES)
"""Every method by the name requests use."""


def solve(
    problem: Problem,
    *,
    method: str = "auto",
    time_limit: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result[Plan]:
    """Plan a whole iteration.

    Parameters
    ----------
    problem : Problem
        The model, the cluster and the options.
    method : str
        One of `METHODS`.
    time_limit : float, optional
        Seconds after which the best plan so far is returned.
    progress : callable, optional
        Called with the name of each alternative before it is planned (method `auto`).

    Returns
    -------
    Result
        The plan, checked and priced outside the method.

    Raises
    ------
    InvalidInputError
        If the method is unknown or does not apply to the problem.
    """
    known_method(method, METHODS)
    deadline = deadline_in(time_limit)
    begin = time.perf_counter()
    if method == "auto":
        found = alternatives(problem, deadline, progress)
        return best_of(problem, found, time.perf_counter() - begin)
    return _by_rule(problem, method)


def best_of(problem: Problem, found: Iterable[Alternative], runtime_s: float) -> Result[Plan]:
    """Return the best of all alternatives as a result; of equally good ones the first.

    Parameters
    ----------
    problem : Problem
        Their problem.
    found : iterable of Alternative
        All of them.
    runtime_s : float
        How long they took.
    """
    listed = list(found)
    priced = [one for one in listed if one.objective_ns is not None]
    timed_out = any(one.timed_out for one in listed)
    if not priced:
        reasons = [one.infeasibility for one in listed if one.infeasibility is not None]
        reason = Infeasibility(
            "; ".join(dict.fromkeys(one.reason for one in reasons)),
            tuple(dict.fromkeys(name for one in reasons for name in one.binding)),
        )
        return Result("auto", None, None, None, runtime_s, infeasibility=reason)
    best = min(priced, key=lambda one: one.objective_ns or 0)
    assert best.plan is not None
    objective = _priced(problem, best.plan, "auto")
    lowest = min(
        _bound_for(problem, one, best.plan) for one in listed if one.lower_bound_ns is not None
    )
    return Result("auto", best.plan, objective, lowest, runtime_s, timed_out)


def _bound_for(problem: Problem, alternative: Alternative, plan: Plan) -> int:
    """Return an alternative's bound for the op orders of a plan, if its own plan has others."""
    own = alternative.plan
    if own is None or own.backward_orders != plan.backward_orders:
        return bound(problem, alternative.synchronisation, alternative.mode, plan)
    return alternative.lower_bound_ns or 0


def _least_bound(problem: Problem, plan: Plan) -> int:
    """Return what no plan asked for undercuts: by any algorithm there is, in any mode."""
    cheapest = undominated(problem.options)
    return min(
        bound(problem, one, mode, plan)
        for mode in problem.modes
        if too_small(problem, mode) is None
        for one in cheapest
    )


def _by_rule(problem: Problem, method: str) -> Result[Plan]:
    """Return the best plan a rule makes with the algorithms that libraries have."""
    begin = time.perf_counter()
    plans, refused = [], None
    planned: set[AffineCost] = set()  # algorithms that cost the same make the same plan
    for synchronisation in problem.options:
        if not synchronisation.in_libraries and method != "bml":
            continue
        if synchronisation.half in planned:
            continue
        try:
            plan = RULES[method](problem, synchronisation)
        except NotApplicableError as error:
            refused = error
            continue
        planned.add(synchronisation.half)
        if plan.mode not in problem.modes:
            refused = NotApplicableError("modes", f"the plans of {method} are {plan.mode}")
            continue
        objective = evaluate(problem, plan).iteration_ns
        plans.append((objective, plan))
    if not plans:
        needed = dict(problem.left_out).get(method)  # an algorithm that the cluster does not allow
        if needed is not None:
            raise NotApplicableError("method", needed)
        raise refused or NotApplicableError(
            "algorithms", "no algorithm that today's libraries have can be used"
        )
    runtime = time.perf_counter() - begin
    broken: Infeasibility | None = None
    for _, plan in sorted(plans, key=lambda one: one[0]):
        small = too_small(problem, plan.mode) or too_many(problem, plan.mode)
        if small is not None:
            broken = broken or small
            continue
        try:
            objective = _priced(problem, plan, method)
        except BrokenConstraintError as error:
            broken = broken or Infeasibility(
                f"the plan of {method} breaks a constraint ({error}); auto keeps to it",
                (error.binding,),
            )
            continue
        return Result(method, plan, objective, _least_bound(problem, plan), runtime)
    return Result(method, None, None, None, runtime, infeasibility=broken)


def _priced(problem: Problem, plan: Plan, method: str) -> int:
    """Check a plan and price it.

    Raises
    ------
    BrokenConstraintError
        If a transfer is larger than there is room for.
    """
    with plan_of_method(method):
        check(problem, plan)
        evaluation = evaluate(problem, plan)
        check_times(problem, plan, evaluation.iteration)
    check_room(problem, plan)
    return total(evaluation.iteration_ns, "cluster", "what an iteration lasts")
