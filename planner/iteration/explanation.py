"""Explain a plan: where its time goes, and what would make the runner-up win.

Method: three parts of the iteration: computation; the exposed communication if start-ups and
further messages were free; and what these add. All are differences of prices of the same plan.
`planner.iteration.crossover` finds the changes that make the runner-up win.
Guarantee: the parts add up to the iteration.
Complexity: two prices, and those of the crossover.
Source: own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from planner.costs import scaled_cost
from planner.deadline import NEVER, Deadline
from planner.iteration.alternatives import Alternative
from planner.iteration.crossover import Change, changes, dominating
from planner.iteration.evaluation import Evaluation, evaluate
from planner.iteration.plan import Plan
from planner.iteration.problem import Problem

__all__ = ["Explanation", "explain", "runner_up"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a plan won.

    Attributes
    ----------
    computation_ns : int
        Computation of the iteration, slowed down by transfers without start-ups.
    exposed_bytes_ns : int
        Exposed communication if start-ups were free.
    exposed_startup_ns : int
        Exposed communication that start-ups add.
    runner_up : Alternative or None
        The next best alternative of another cost.
    dominated_by : str or None
        An algorithm that dominates the runner-up's in the same mode, so that it never wins.
    changes : tuple of Change
        Changes that would make the runner-up shorter.
    """

    computation_ns: int
    exposed_bytes_ns: int
    exposed_startup_ns: int
    runner_up: Alternative | None
    dominated_by: str | None
    changes: tuple[Change, ...]


def runner_up(plan: Plan, candidates: Iterable[Alternative]) -> Alternative | None:
    """Return the best alternative that is not the plan's own under another name.

    Alternatives by another algorithm and of another cost come first.
    """
    listed = [candidate for candidate in candidates if candidate.objective_ns is not None]
    # A plan for several scenarios belongs to one of these ways, but need not be its best plan.
    own = next(
        candidate
        for candidate in sorted(listed, key=lambda candidate: candidate.plan != plan)
        if (candidate.synchronisation.algorithm, candidate.mode) == (plan.way, plan.mode)
        or candidate.plan == plan
    )
    others = [
        candidate
        for candidate in listed
        if candidate.synchronisation.half != own.synchronisation.half
        and not (candidate.plan and _same(candidate.plan, plan))
    ] or [candidate for candidate in listed if candidate.mode != own.mode]
    return min(others, key=lambda candidate: candidate.objective_ns or 0, default=None)


def _same(mixed: Plan, plan: Plan) -> bool:
    """Return whether two plans use the same algorithms in the same mode."""
    return (mixed.algorithms, mixed.mode) == (plan.algorithms, plan.mode)


def explain(
    problem: Problem,
    plan: Plan,
    candidates: Iterable[Alternative],
    deadline: Deadline = NEVER,
    evaluation: Evaluation | None = None,
) -> Explanation:
    """Explain the choice of a plan among its alternatives.

    Parameters
    ----------
    problem : Problem
        The problem.
    plan : Plan
        The chosen plan.
    candidates : iterable of Alternative
        All alternatives.
    deadline : Deadline
        When to stop searching for changes.
    evaluation : Evaluation, optional
        The plan's evaluation, if known.
    """
    evaluation = evaluation or evaluate(problem, plan)
    # A shorter alternative was rejected for its cost in other scenarios: no change is needed.
    candidates = tuple(
        candidate
        for candidate in candidates
        if candidate.objective_ns is None
        or candidate.objective_ns >= evaluation.iteration_ns
        or (candidate.synchronisation.algorithm, candidate.mode) == (plan.way, plan.mode)
    )
    prompt = {
        how: replace(
            option,
            half=scaled_cost(option.half, startup=0),
            whole=scaled_cost(option.all_reduce, startup=0),
            gather=None if option.gather is None else scaled_cost(option.gather, startup=0),
        )
        for how, option in problem.costs.items()
    }
    free = evaluate(problem, plan, prompt)
    second = runner_up(plan, candidates)
    better = None if second is None else dominating(problem, second, candidates)
    return Explanation(
        computation_ns=free.computation_ns,
        exposed_bytes_ns=free.stall_ns,
        exposed_startup_ns=evaluation.iteration_ns - free.iteration_ns,
        runner_up=second,
        dominated_by=better,
        changes=()
        if second is None or better is not None
        else changes(problem, plan, second, candidates, deadline),
    )
