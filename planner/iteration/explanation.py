"""Why a plan won: where its time goes, and what would have to change for the next one to win.

Problem: a plan is the best of several. What does its time consist of, and how far is the choice
from another one?

Method. Where the time goes: the computation; what is waited for beyond it if start-ups and further
messages were free; what these add. All three are differences of prices of the same plan. What would
have to change: `planner.iteration.crossover`.

Guarantee: the parts add up to the iteration. Complexity: two prices, and those of the crossover.
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
        Computation of the iteration, as slow as it is beside transfers without start-ups.
    exposed_bytes_ns : int
        What it waits beyond that if start-ups were free.
    exposed_startup_ns : int
        What start-ups add.
    runner_up : Alternative or None
        The next best way that costs something else.
    dominated_by : str or None
        An algorithm that costs no more for any size, in the same mode: the runner-up never wins.
    changes : tuple of Change
        What would make it the shorter one.
    """

    computation_ns: int
    exposed_bytes_ns: int
    exposed_startup_ns: int
    runner_up: Alternative | None
    dominated_by: str | None
    changes: tuple[Change, ...]


def runner_up(plan: Plan, candidates: Iterable[Alternative]) -> Alternative | None:
    """Return the best alternative that is not the plan's own under another name.

    One by another algorithm comes first, if there is one that costs something else.
    """
    listed = [candidate for candidate in candidates if candidate.objective_ns is not None]
    # A plan for several scenarios is of one of these ways, if not the way's own best.
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
    """Return whether a plan, of the mixture then, uses no algorithm but that of another."""
    return (mixed.algorithms, mixed.mode) == (plan.algorithms, plan.mode)


def explain(
    problem: Problem,
    plan: Plan,
    candidates: Iterable[Alternative],
    deadline: Deadline = NEVER,
    evaluation: Evaluation | None = None,
) -> Explanation:
    """Explain the choice of a plan among the alternatives it was chosen from.

    Parameters
    ----------
    problem : Problem
        The problem.
    plan : Plan
        The one chosen.
    candidates : iterable of Alternative
        All of them.
    deadline : Deadline
        When to stop looking for what would change the choice.
    evaluation : Evaluation, optional
        What the plan costs, where that is known.
    """
    evaluation = evaluation or evaluate(problem, plan)
    # One that is shorter was passed over for what it costs in scenarios: nothing has to change.
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
