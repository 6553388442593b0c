"""Synchronisation plans of a BCube, typed or as answers, as collective programs."""

from collections.abc import Mapping
from typing import Any

from planner.families.bml.problem import Plan
from planner.families.bml.program import program_of
from planner.families.collectives.bml import bml_program
from planner.jsonio.bml_answer import BmlAnswer
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube
from planner.programs.answers import read_plan
from planner.programs.collectives import SummingProgram, summing_program


def bcube_program(
    bcube: BCube, plan: bytes | Mapping[str, Any] | BmlAnswer | Plan | None
) -> SummingProgram:
    """Return a plan's program, its depth, and the only tensor size it fits, if any.

    A plan for another network, or one that does not list its transfers, is an `InvalidInputError`.
    """
    if plan is None:
        return SummingProgram(bml_program(bcube))
    if not isinstance(plan, bytes | Mapping | BmlAnswer):
        if plan.bcube != bcube:
            raise InvalidInputError("plan", f"expected one for {bcube}, got one for {plan.bcube}")
        return SummingProgram(program_of(plan), plan.rounds)
    answer = read_plan(plan)  # which checks it
    if not isinstance(answer, BmlAnswer):
        raise InvalidInputError("problem", f"expected a plan of bml, got {answer.problem}")
    if (answer.n, answer.k) != (bcube.n, bcube.k):
        raise InvalidInputError(
            "n" if answer.n != bcube.n else "k",
            f"a plan for BCube({answer.n}, {answer.k}), expected one for "
            f"BCube({bcube.n}, {bcube.k})",
        )
    return summing_program(answer)
