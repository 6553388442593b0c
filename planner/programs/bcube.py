"""Plans of a synchronisation on a BCube as collective programs, typed or from a file."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from planner.bml.plan import Plan
from planner.bml.program import program_of
from planner.collectives.bml import bml_program
from planner.collectives.program import Program
from planner.errors import InvalidInputError
from planner.jsonio import bml_transfers
from planner.jsonio.bml_answer import BmlAnswer
from planner.programs.answers import read_plan
from planner.topologies import BCube

__all__ = ["bcube_program"]


def bcube_program(
    bcube: BCube, plan: bytes | Mapping[str, Any] | BmlAnswer | Plan | None
) -> tuple[Program, int, int | None]:
    """Return a plan as a program, its depth, and the only size of tensors that it is for.

    Raises
    ------
    InvalidInputError
        If it is no plan for this network, or leaves open what is sent.
    InvalidPlanError
        If an answer does not sum up every contribution exactly once.
    """
    if plan is None:
        return bml_program(bcube), 1, None
    if not isinstance(plan, bytes | Mapping | BmlAnswer):
        if plan.bcube != bcube:
            raise InvalidInputError("plan", f"expected one for {bcube}, got one for {plan.bcube}")
        return program_of(plan), plan.rounds, None
    answer = read_plan(plan)  # which checks it
    if not isinstance(answer, BmlAnswer):
        raise InvalidInputError("problem", f"expected a plan of bml, got {answer.problem}")
    if (answer.n, answer.k) != (bcube.n, bcube.k):
        raise InvalidInputError(
            "n" if answer.n != bcube.n else "k",
            f"a plan for BCube({answer.n}, {answer.k}), expected one for "
            f"BCube({bcube.n}, {bcube.k})",
        )
    if not bml_transfers.lists_all(answer):
        why = '; ask for "schedule": "all"' if answer.reason is UNSET else f": {answer.reason}"
        raise InvalidInputError("transfers", f"missing those of all servers{why}")
    program, size = bml_transfers.program_of(answer)
    if not size:
        raise InvalidInputError("transfers", "expected some, got none")
    return program, 1, size
