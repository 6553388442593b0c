"""A plan that was found, with its time and its bound."""

from typing import Any, Generic, NamedTuple, Self, TypeVar

from planner.solving.result import Result

PlanT = TypeVar("PlanT")


class Solved(NamedTuple, Generic[PlanT]):
    """A plan, its iteration, and the bound."""

    plan: PlanT
    iteration_ns: int
    bound_ns: int

    @classmethod
    def of(cls, result: Result[PlanT, Any]) -> Self:
        assert result.plan is not None
        assert result.objective_ns is not None
        assert result.lower_bound_ns is not None
        return cls(result.plan, result.objective_ns, result.lower_bound_ns)
