"""The methods by name, and the way every plan takes: made, checked, priced, bounded.

`auto` is `exact`: the exact methods are faster than reading their input (near-linear for costs that
add up, quadratic otherwise), as ``benchmarks/ibatch_speed.py`` shows.
"""

import time
from collections.abc import Callable, Mapping

from planner.deadline import Deadline
from planner.errors import (
    BrokenConstraintError,
    InvalidPlanError,
    NotApplicableError,
)
from planner.ibatch.baselines import ddp, layer_by_layer, mg_wfbp, one_batch
from planner.ibatch.bounds import relaxation
from planner.ibatch.evaluation import check, evaluate, objective_ns
from planner.ibatch.greedy import greedy, greedy_backward, greedy_forward
from planner.ibatch.makespan import solve_additive
from planner.ibatch.problem import Outcome, Plan, Problem
from planner.methods import deadline_in, known_method
from planner.results import Infeasibility, Result

__all__ = ["METHODS", "Method", "solve"]

Method = Callable[[Problem, Deadline], Outcome]

RULES = frozenset(
    ("greedy", "greedy_forward", "greedy_backward", "one_batch", "layer_by_layer", "mg_wfbp", "ddp")
)
"""Methods whose batches may break a constraint of the problem; the others search within them."""

BOUND_MAX_LAYERS = 1024
"""Up to so many layers the quadratic exact methods serve as the bound of the others' plans."""


def _exact(problem: Problem) -> Method:
    """Choose the exact method of the objective and the kind of cost."""
    if problem.objective == "eq4":
        from planner.ibatch.paper_model import solve_paper_model

        return solve_paper_model
    if problem.transfer_prefix is not None:
        return solve_additive
    from planner.ibatch.dynamic import solve_general

    return solve_general


def _milp(_: Problem) -> Method:
    try:
        from planner.ibatch.milp import solve_milp
    except ImportError as error:
        raise NotApplicableError("method", f"milp: PuLP cannot be loaded: {error}") from None
    return solve_milp


def _cpsat(_: Problem) -> Method:
    try:
        from planner.ibatch.cpsat import solve_cpsat
    except ImportError as error:  # for one, highspy was imported before: see planner.ibatch.milp
        raise NotApplicableError("method", f"cpsat: OR-Tools cannot be loaded: {error}") from None
    return solve_cpsat


def _mg_wfbp(problem: Problem) -> Method:
    _only_push(problem, "mg_wfbp")
    return mg_wfbp


def _ddp(problem: Problem) -> Method:
    _only_push(problem, "ddp")
    if problem.layer_bytes is None:
        raise NotApplicableError("layer_bytes", "missing: method ddp needs it")
    return ddp


def _only_push(problem: Problem, method: str) -> None:
    if problem.direction != "push":
        raise NotApplicableError("method", f"{method} groups gradients: only with direction push")


METHODS: Mapping[str, Callable[[Problem], Method]] = {
    "auto": _exact,
    "exact": _exact,
    "greedy": lambda _: greedy,
    "greedy_forward": lambda _: greedy_forward,
    "greedy_backward": lambda _: greedy_backward,
    "milp": _milp,
    "cpsat": _cpsat,
    "one_batch": lambda _: one_batch,
    "layer_by_layer": lambda _: layer_by_layer,
    "mg_wfbp": _mg_wfbp,
    "ddp": _ddp,
}
"""For each name requests use, what loads the method (solver libraries are imported when used)."""


def solve(
    problem: Problem, *, method: str = "auto", time_limit: float | None = None
) -> Result[Plan]:
    """Choose the batches of `problem`.

    Parameters
    ----------
    problem : Problem
        What to batch.
    method : str
        A key of `METHODS`.
    time_limit : float, optional
        Seconds after which the best plan so far is returned.

    Returns
    -------
    Result
        The plan, checked and priced outside the method, with a proven bound.

    Raises
    ------
    InvalidInputError
        If the method is unknown or does not apply to the problem.
    """
    known_method(method, METHODS)
    method = "exact" if method == "auto" else method
    run = METHODS[method](problem)
    deadline = deadline_in(time_limit)
    begin = time.perf_counter()
    infeasibility = problem.too_large()
    outcome = (
        Outcome(None, infeasibility=infeasibility) if infeasibility else run(problem, deadline)
    )
    runtime = time.perf_counter() - begin
    if outcome.boundaries is None:
        return Result(method, None, None, None, runtime, outcome.timed_out, outcome.infeasibility)
    plan = Plan.from_boundaries(outcome.boundaries, problem.direction)
    try:
        check(problem, plan)
    except BrokenConstraintError as error:
        if method not in RULES:
            raise RuntimeError(f"method {method} made no plan: {error}") from error
        broken = Infeasibility(
            f"the batches of method {method} break a constraint ({error}); "
            "method exact finds the best batches that do not, or proves that there are none",
            (error.binding,),
        )
        return Result(method, None, None, None, runtime, infeasibility=broken)
    except InvalidPlanError as error:
        raise RuntimeError(f"method {method} made no plan: {error}") from error
    cost = objective_ns(problem, evaluate(problem, plan))
    bound, timed_out = outcome.lower_bound_ns, outcome.timed_out
    if bound is None:
        bound, cut = _proven_bound(problem, deadline)
        timed_out |= cut
    return Result(method, plan, cost, bound, runtime, timed_out)


def _proven_bound(problem: Problem, deadline: Deadline) -> tuple[int, bool]:
    """Return the best bound that costs little, and whether the time limit left a worse one.

    That is the optimum itself wherever it is near.
    """
    additive = problem.objective == "makespan" and problem.transfer_prefix is not None
    if not additive and problem.layers > BOUND_MAX_LAYERS:
        return relaxation(problem), False
    proof = _exact(problem)(problem, deadline)
    bound = proof.lower_bound_ns
    return relaxation(problem) if bound is None else bound, proof.timed_out
