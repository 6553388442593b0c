"""Results of searches that find no plan of their own: time limit or proof of infeasibility."""

from planner.deadline import Deadline
from planner.errors import BrokenConstraintError
from planner.ibatch.bounds import relaxation
from planner.ibatch.evaluation import check, evaluate, objective_ns
from planner.ibatch.greedy import greedy_backward
from planner.ibatch.problem import Plan, Problem
from planner.results import Infeasibility
from planner.solving.methods import Outcome

__all__ = ["nothing_covers", "out_of_time"]


def out_of_time(problem: Problem) -> Outcome[Plan]:
    """Return the better of a greedy plan and the longest batches within the cap, with a bound.

    With Eq. 4 and a cap, both may break Eq. 5; then there is no plan.
    """
    boundaries = [0]
    while boundaries[-1] < problem.layers:
        boundaries.append(problem.reach(boundaries[-1]))
    plans = problem.plan(boundaries), greedy_backward(problem, Deadline(None)).plan
    known = {}
    for plan in plans:
        assert plan is not None
        try:
            check(problem, plan)
        except BrokenConstraintError:
            continue
        known[objective_ns(problem, evaluate(problem, plan))] = plan
    if not known:
        reason = "the time limit passed before any plan within max_batch_bytes was found"
        return Outcome(None, infeasibility=Infeasibility(reason, ("time_limit_s",)), timed_out=True)
    return Outcome(known[min(known)], relaxation(problem), timed_out=True)


def nothing_covers(problem: Problem) -> Infeasibility:
    """Return the infeasibility when Eq. 5 and the cap admit no plan."""
    return Infeasibility(
        f"within max_batch_bytes = {problem.max_batch_bytes} every choice of batches breaks Eq. 5 "
        "(computation of a batch outlasts communication of the next); without the cap one batch "
        "always satisfies it",
        ("eq5", "max_batch_bytes"),
    )
