"""Preconditions of methods, checked with the same messages everywhere."""

from planner.families.yan.problem import Problem
from planner.model.errors import NotApplicableError


def refuse_fixed(problem: Problem, method: str) -> None:
    """Raise NotApplicableError if configurations are fixed: the method only searches."""
    if problem.fixed:
        raise NotApplicableError("fixed", f"{method} prices no given configuration; use 'auto'")


DEPENDS = (
    "takes machines that are all alike: where they differ, time depends on which ones are in use"
)
"""Why studies over numbers of machines need equal machines."""


def refuse_different(
    problem: Problem, what: str, why: str = "is for machines that are alike; use 'auto'"
) -> None:
    """Raise NotApplicableError if the machines differ."""
    if not problem.uniform:
        fields = [
            field
            for field in ("machine_speeds", "nic_speeds")
            if len(set(getattr(problem, field) or ())) > 1
        ]
        raise NotApplicableError(fields[0], f"{what} {why}")
