"""How searches over all batches end without an answer of their own: out of time, or in proof.

Complexity: O(B log L).
"""

from planner.ibatch.bounds import relaxation
from planner.ibatch.problem import Outcome, Problem
from planner.results import Infeasibility

__all__ = ["nothing_covers", "out_of_time"]


def out_of_time(problem: Problem) -> Outcome:
    """Return the plan of the longest batches within the cap, with a bound.

    Under Eq. 4 that is a plan only if it is one batch; otherwise there is none to return.
    """
    boundaries = [0]
    while boundaries[-1] < problem.layers:
        boundaries.append(problem.reach(boundaries[-1]))
    if problem.objective == "eq4" and len(boundaries) > 2:
        reason = "the time limit passed before any plan within max_batch_bytes was found"
        return Outcome(None, infeasibility=Infeasibility(reason, ("time_limit_s",)), timed_out=True)
    return Outcome(boundaries, relaxation(problem), timed_out=True)


def nothing_covers(problem: Problem) -> Infeasibility:
    """Return the answer to a proof that Eq. 5 and the cap admit no plan."""
    return Infeasibility(
        f"within max_batch_bytes = {problem.max_batch_bytes} every choice of batches breaks Eq. 5 "
        "(computation of a batch outlasts communication of the next); without the cap one batch "
        "always satisfies it",
        ("eq5", "max_batch_bytes"),
    )
