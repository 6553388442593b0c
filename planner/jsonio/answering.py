"""How a request of any family is answered: a plan, and what else was asked for."""

from typing import Any, Unpack

from planner.jsonio.control import Controlled
from planner.jsonio.heads import Head, warned
from planner.jsonio.what_if import planned
from planner.solving.deadline import Control

__all__ = ["run"]


def run(request: Controlled, **control: Unpack[Control[Any]]) -> Any:
    """Answer one request of any family; `control` is that of the family's `solve`."""
    problem = request.to_problem()
    request.refuse(problem)
    foreseen = planned(request, problem, control)
    made: Head = request.full_answer(foreseen)
    return warned(made, request.doubts(foreseen.result))
