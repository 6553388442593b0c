"""Makespan of batches when transfers or computation are slower (`planner.robustness`); O(B)."""

from collections.abc import Sequence
from itertools import pairwise

from planner.ibatch.problem import Plan, Problem
from planner.robustness import STRAINS, Step, Strain, end_under

__all__ = ["boundaries_of", "lasts_under", "strained_of"]


def boundaries_of(plan: Plan) -> list[int]:
    """Return the boundaries 0 = l_0 < l_1 < … < L of a plan."""
    return [0, *sorted(stop for _, stop in plan.batches)]


def lasts_under(problem: Problem, boundaries: Sequence[int], strain: Strain) -> int:
    """Return the makespan of batches under a `Strain` (factors on transfers and computation)."""
    computed = problem.compute_prefix
    steps = (
        Step(0, problem.transfer_time(start, stop), computed[-1] - computed[start])
        for start, stop in pairwise(boundaries)
    )
    return end_under(strain, steps, 0)


def strained_of(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """Return the makespan of a plan under each delay in `STRAINS`."""
    boundaries = boundaries_of(plan)
    return tuple(lasts_under(problem, boundaries, strain) for strain in STRAINS)
