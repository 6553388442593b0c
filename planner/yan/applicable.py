"""What methods say of problems they are not for."""

from planner.errors import NotApplicableError
from planner.yan.problem import Problem

__all__ = ["refuse_different", "refuse_fixed"]


def refuse_fixed(problem: Problem, method: str) -> None:
    """Raise an error if configurations are given: such a method only searches."""
    if problem.fixed:
        raise NotApplicableError("fixed", f"{method} prices no given configuration; use 'auto'")


def refuse_different(problem: Problem, method: str) -> None:
    """Raise an error if machines differ."""
    if not problem.uniform:
        fields = [
            field
            for field in ("machine_speeds", "nic_speeds")
            if len(set(getattr(problem, field) or ())) > 1
        ]
        raise NotApplicableError(fields[0], f"{method} is for machines that are alike; use 'auto'")
