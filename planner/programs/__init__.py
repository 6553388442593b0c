"""Plans in the form that executors follow: which bytes travel together, in which order.

A plan comes typed, with its problem, or as an answer of the JSON interface; both give the same
program. The adapter copies the plan and decides nothing: a decision that the plan leaves open is an
error with a path. The adapter needs no torch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from planner.jsonio.ibatch import IbatchAnswer
from planner.model.errors import InvalidInputError
from planner.programs.forms import (
    Batch,
    GradientProgram,
    Piece,
    Program,
    ShardedUnit,
    ShardProgram,
    SliceProgram,
    UnitProgram,
    digest,
    with_pieces,
)
from planner.programs.from_plans import (
    Answer,
    TypedPlan,
    answer_of,
    is_typed,
    read_answer,
    read_plan,
    shards,
)

__all__ = [
    "Answer",
    "Batch",
    "GradientProgram",
    "Piece",
    "Plan",
    "Program",
    "ShardProgram",
    "ShardedUnit",
    "SliceProgram",
    "TypedPlan",
    "UnitProgram",
    "digest",
    "program_of",
    "read_plan",
    "with_pieces",
]

Plan = bytes | Mapping[str, Any] | Answer | TypedPlan


def program_of(*plans: Plan | list[Plan] | tuple[Plan, ...]) -> Program:
    """Return the program that executors follow.

    Parameters
    ----------
    *plans
        One plan of `iteration`, `caramel`, `bigdl` or `fsdp`; or one or two of `ibatch`, for pull
        and for push, also as a list. A direction without a plan travels as one batch. A plan is an
        answer of ``planner solve``, as JSON text, plain values or typed; or a problem with its plan
        or result, ``(problem, caramel.solve(problem))``. A problem and plan of `ibatch` are
        followed by the names of each layer's parameters (`Profile.layer_parameters`).

    Raises
    ------
    InvalidInputError
        If a plan leaves open what an executor needs, or plans do not belong together.
    InvalidPlanError
        If a typed plan does not fit its problem.
    """
    several: Sequence[Any] = plans
    if len(plans) == 1 and isinstance(plans[0], list | tuple) and not is_typed(plans[0]):
        several = plans[0]
    answers = [answer_of(plan) if is_typed(plan) else read_plan(plan) for plan in several]
    if not answers:
        raise InvalidInputError("", "expected a plan")
    if len(answers) == 1:
        return read_answer(answers[0])
    directions = [answer for answer in answers if isinstance(answer, IbatchAnswer)]
    if len(directions) < len(answers):
        names = " and ".join(answer.problem for answer in answers)
        raise InvalidInputError("problem", f"expected one plan, or two of ibatch, got {names}")
    return shards(directions)
