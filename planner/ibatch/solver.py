"""The methods by name, and how their plans are judged.

`auto` is `exact`: the exact methods are faster than reading their input (near-linear for costs that
add up, quadratic otherwise), as ``benchmarks/ibatch_speed.py`` shows.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias, Unpack

from planner.deadline import NEVER, Control, Deadline
from planner.errors import BrokenConstraintError, NotApplicableError
from planner.ibatch.baselines import ddp, layer_by_layer, mg_wfbp, one_batch
from planner.ibatch.beside import least_beside, planned_beside
from planner.ibatch.bounds import relaxation
from planner.ibatch.evaluation import Evaluation, check, evaluate, objective_ns
from planner.ibatch.for_target import within
from planner.ibatch.greedy import greedy, greedy_backward, greedy_forward
from planner.ibatch.makespan import solve_additive
from planner.ibatch.problem import Plan, Problem
from planner.ibatch.refit import refit
from planner.ibatch.robust import robust
from planner.interference import ALONE
from planner.methods import Method as AnyMethod
from planner.methods import Outcome, judged, loaded, named, solve_with, with_plugins
from planner.results import Infeasibility, Result

__all__ = ["METHODS", "Method", "priced", "solve"]

Method: TypeAlias = AnyMethod[Problem, Plan]

BOUND_MAX_LAYERS = 1024
"""Up to so many layers the quadratic exact methods serve as the bound of the others' plans."""


def _exact(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Find the best plan, and of those that are as good the most robust one."""
    return robust(problem, _best(problem, deadline), deadline)


def _best(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Run the exact method of the objective and the kind of cost."""
    if problem.objective == "eq4":
        from planner.ibatch.paper_model import solve_paper_model

        return solve_paper_model(problem, deadline)
    if problem.transfer_prefix is not None:
        return solve_additive(problem, deadline)
    from planner.ibatch.dynamic import solve_general

    return solve_general(problem, deadline)


def _within(run: Method) -> Method:
    """Return a searching method that says which layers no batch can hold."""

    def method(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        too_large = problem.too_large()
        return Outcome(None, infeasibility=too_large) if too_large else run(problem, deadline)

    return method


def _rule(name: str, run: Method) -> Method:
    """Return a method whose batches follow from a rule, and may break a constraint."""

    def method(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        outcome = run(problem, deadline)
        assert outcome.plan is not None
        try:
            check(problem, outcome.plan)
        except BrokenConstraintError as error:
            reason = (
                f"the batches of method {name} break a constraint ({error}); "
                "method exact finds the best batches that do not, or proves that there are none"
            )
            return Outcome(None, infeasibility=Infeasibility(reason, (error.binding,)))
        return outcome

    return _within(method)


def _push_only(name: str, run: Method) -> Method:
    """Return a method that groups gradients, and does not apply to pulls."""

    def method(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        if problem.direction != "push":
            reason = f"{name} groups gradients: only with direction push"
            raise NotApplicableError("method", reason)
        return run(problem, deadline)

    return method


RULES: Mapping[str, Method] = {
    "greedy": _rule("greedy", greedy),
    "greedy_forward": _rule("greedy_forward", greedy_forward),
    "greedy_backward": _rule("greedy_backward", greedy_backward),
    "one_batch": _rule("one_batch", one_batch),
    "layer_by_layer": _rule("layer_by_layer", layer_by_layer),
    "mg_wfbp": _push_only("mg_wfbp", _rule("mg_wfbp", mg_wfbp)),
    "ddp": _push_only("ddp", _rule("ddp", ddp)),
}
"""Methods that follow a rule, whatever it costs."""

METHODS: Mapping[str, Method] = with_plugins(
    "ibatch",
    {
        "auto": _within(named("exact", _exact)),
        "exact": _within(_exact),
        **{name: RULES[name] for name in ("greedy", "greedy_forward", "greedy_backward")},
        "milp": _within(loaded("planner.ibatch.milp", "solve_milp", "milp: PuLP")),
        # For one, highspy was imported before: see planner.ibatch.milp.
        "cpsat": _within(loaded("planner.ibatch.cpsat", "solve_cpsat", "cpsat: OR-Tools")),
        **RULES,
    },
)
"""Every method by the name requests use."""


def solve(
    problem: Problem,
    *,
    method: str = "auto",
    time_limit: float | None = None,
    **control: Unpack[Control[Plan]],
) -> Result[Plan, Evaluation]:
    """Choose the batches of `problem`.

    Parameters
    ----------
    problem : Problem
        What to batch.
    method : str
        A key of `METHODS`, or the name of the problem's target: its default.
    time_limit : float, optional
        Seconds after which the best plan so far is returned.
    **control
        See `planner.Control`.

    Returns
    -------
    Result
        The plan, checked and priced outside the method, with a proven bound.

    Raises
    ------
    InvalidInputError
        If the method is unknown or does not apply to the problem.
    """
    methods = METHODS
    if not problem.interference.is_none:
        methods = {name: _beside(name, method) for name, method in METHODS.items()}
    if problem.target is not None:
        methods = within(methods, problem.target)
    return solve_with(
        methods,
        problem,
        method,
        time_limit,
        judge=_judge,
        bound=_bound,
        refit=refit,
        form=Plan,
        **control,
    )


def _beside(name: str, method: Method) -> Method:
    """Return a method for problems in which communication and computation disturb each other.

    `exact`, and so `auto`, searches. Others plan as ever; what they prove is a bound.
    """

    def run(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        if name in ("auto", "exact"):
            rules = (METHODS[rule] for rule in RULES)
            return replace(planned_beside(problem, _exact, rules, deadline), method="exact")
        outcome = method(replace(problem, interference=ALONE), deadline)
        return replace(outcome, lower_bound=None)

    return _within(run)


def priced(problem: Problem, outcome: Outcome[Plan], runtime_s: float) -> Result[Plan, Evaluation]:
    """Return what was found elsewhere, checked, priced and bounded like any method's answer."""
    return judged(problem, outcome, runtime_s, NEVER, judge=_judge, bound=_bound)


def _judge(problem: Problem, plan: Plan, _: Deadline) -> tuple[Evaluation, int]:
    check(problem, plan)
    evaluation = evaluate(problem, plan)
    return evaluation, objective_ns(problem, evaluation)


def _bound(problem: Problem, _: Plan, deadline: Deadline) -> tuple[int, bool]:
    """Return the best bound that costs little: the optimum itself wherever it is near.

    Interference makes nothing earlier: bounds without it hold.
    """
    least = least_beside(problem)
    additive = problem.objective == "makespan" and problem.transfer_prefix is not None
    if not additive and problem.layers > BOUND_MAX_LAYERS:
        return max(least, relaxation(problem)), False
    proof = _best(problem, deadline)
    bound = proof.lower_bound
    bound = relaxation(problem) if bound is None else int(bound)
    return max(least, bound), proof.timed_out
