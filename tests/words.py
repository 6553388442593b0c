"""A family that is made up: problems and plans are words, and a table says what plans cost."""

from collections.abc import Mapping

from planner.model.errors import InvalidPlanError
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.methods import Method


class Words(Family[str, str, int]):
    """Plans cost what a table says; others are none."""

    name, plan_type = "words", str

    def __init__(
        self,
        costs: Mapping[str, int],
        own_methods: Mapping[str, Method[str, str]],
        bound_ns: int | None = None,
    ) -> None:
        self.costs, self.own_methods, self.bound_ns = costs, own_methods, bound_ns

    def check(self, problem: str, plan: str, deadline: Deadline) -> None:
        if plan not in self.costs:
            raise InvalidPlanError("plan", "none")

    def evaluate(self, problem: str, plan: str, deadline: Deadline) -> int:
        return self.costs[plan]

    def objective(self, problem: str, evaluation: int) -> int:
        return evaluation

    def bound(self, problem: str, plan: str, deadline: Deadline) -> tuple[int | None, bool]:
        return self.bound_ns, False
