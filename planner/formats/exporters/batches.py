"""The batches of a plan, for tools that know only whole parameters.

DDP, FSDP2, Horovod and DeepSpeed send a parameter in one piece, or cut it in their own way. Plans
that cut parameters or send them in parts are refused here, with the group in question.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from planner.jsonio.ibatch import IbatchAnswer
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.validation import shown
from planner.programs import (
    Answer,
    Batch,
    GradientProgram,
    Program,
    ShardProgram,
    SliceProgram,
    program_of,
    read_plan,
)


def gradients_of(*plans: bytes | Mapping[str, Any] | Answer) -> tuple[Batch, ...]:
    """Return the batches in which plans send gradients, with their sizes if known.

    A plan is one of `caramel` or `iteration`, or of `ibatch` for push; one for pull is ignored.
    """
    return gradient_batches(_about("push", plans))


def pulls_of(*plans: bytes | Mapping[str, Any] | Answer) -> tuple[Batch, ...]:
    """Return the batches in which plans pull parameters, with their sizes if known.

    A plan is one of `ibatch` for pull, or a sharded one of `iteration`; one for push is ignored.
    """
    return pull_batches(_about("pull", plans))


def gradient_batches(program: Program) -> tuple[Batch, ...]:
    """Return the batches in which a program sends gradients."""
    if isinstance(program, GradientProgram):
        return program.batches
    if isinstance(program, ShardProgram):
        return program.pushes
    family = "bigdl" if isinstance(program, SliceProgram) else "fsdp"
    raise NotApplicableError(
        "problem", f"expected a plan of caramel or ibatch, got one of {family}"
    )


def pull_batches(program: Program) -> tuple[Batch, ...]:
    """Return the batches in which a program pulls parameters."""
    if isinstance(program, ShardProgram):
        return program.pulls
    raise NotApplicableError(
        "problem", "expected a plan of ibatch, or a sharded one of iteration: no other pulls"
    )


def whole_names(batches: Iterable[Batch], path: str = "groups") -> tuple[tuple[str, ...], ...]:
    """Return the parameter names of each batch.

    A cut or repeated parameter, or a batch in parts, is a `NotApplicableError`.
    """
    first: dict[str, int] = {}
    names = []
    for number, batch in enumerate(batches):
        where = f"{path}[{number}]"
        if batch.depth != 1:
            raise NotApplicableError(
                where,
                f"is sent in {batch.depth} parts at once, which this tool cannot be told: plan "
                "without depths (a network measured with --depths 1, another method than caramel)",
            )
        for piece in batch.pieces:
            if piece.start or piece.stop is not None:
                raise NotApplicableError(
                    where, f"{shown(piece.parameter)} is cut: expected whole parameters"
                )
            if piece.parameter in first:
                raise NotApplicableError(
                    where,
                    f"{shown(piece.parameter)} is also in {path}[{first[piece.parameter]}]: "
                    "expected whole parameters",
                )
            first[piece.parameter] = number
        names.append(tuple(piece.parameter for piece in batch.pieces))
    return tuple(names)


def _about(direction: str, plans: Iterable[bytes | Mapping[str, Any] | Answer]) -> Program:
    """Return the program of plans; plans of `ibatch` have to include the direction."""
    answers = [read_plan(plan) for plan in plans]
    program = program_of(*answers)
    directions = [answer.direction for answer in answers if isinstance(answer, IbatchAnswer)]
    if directions and direction not in directions:
        raise InvalidInputError("direction", f"expected a plan of ibatch to {direction}")
    return program
