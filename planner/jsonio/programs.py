"""By which collective program a plan sums up: how every answer says it.

A program of many ranks is long; its generator's name and shape say the same, and
`planner.collectives.recipes.made` makes it again. Programs that no generator makes, those of BML
around failures, are in the answer's own ``transfers``.
"""

from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from planner.bml.replan import GENERATORS, made, ranks_of
from planner.collectives import check
from planner.collectives.recipes import Recipe
from planner.errors import InvalidInputError
from planner.jsonio.failures import FailedDocument, failed_document, failures_of
from planner.solving.methods import known_method
from planner.topologies import BCube
from planner.validation import inside

__all__ = [
    "LISTED",
    "ProgramAnswer",
    "ProgramAround",
    "SummedUpBy",
    "Verdict",
    "check_program",
    "program_answer",
    "recipe_in",
    "summed_up_by",
]

LISTED = "listed"
"""The generator of programs that are in the answer, message by message."""

MAX_CHECKED = 2**12
"""Ranks up to which the program of an answer is checked: a few milliseconds."""

MAX_ROUTED = 2**7
"""The same where pieces are passed on through other servers: as many messages as pairs."""

Verdict = Annotated[
    Literal["symmetry", "replay"],
    Meta(description="how it was shown to sum up every contribution once"),
]


class ProgramAnswer(Struct, frozen=True, kw_only=True):
    """The collective program that is run: its generator, and what that takes."""

    generator: Annotated[str, Meta(extra_json_schema={"enum": [*GENERATORS, LISTED]})]
    shape: Annotated[tuple[Annotated[int, Meta(ge=1)], ...], Meta(min_length=1)]
    checked: Verdict | UnsetType = UNSET


class ProgramAround(ProgramAnswer, frozen=True, kw_only=True):
    """The same, and what it goes around."""

    failed: FailedDocument | UnsetType = UNSET


class SummedUpBy(Struct, frozen=True, kw_only=True):
    """How a plan sums up."""

    algorithm: str
    program: ProgramAnswer | UnsetType = UNSET


@lru_cache
def program_answer(recipe: Recipe) -> ProgramAround | UnsetType:
    """Return the program of an algorithm, checked if that takes no time."""
    program = ProgramAround(generator=recipe.generator, shape=recipe.shape)
    if recipe.failed:
        failed = failed_document(BCube(*recipe.shape[:2]), recipe.failed)
        program = msgspec.structs.replace(program, failed=failed)
    try:
        most = MAX_ROUTED if recipe.generator == "routed_bcube" else MAX_CHECKED
        if ranks_of(recipe) > most:
            return program
        messages = made(recipe)
    except InvalidInputError:  # too many ranks, or it has a price and nobody knows how to run it
        return UNSET
    return msgspec.structs.replace(program, checked=check(messages))


def summed_up_by(algorithm: str, recipe: Recipe) -> SummedUpBy:
    """Return what an answer says of an algorithm and its program."""
    return SummedUpBy(algorithm=algorithm, program=program_answer(recipe))


def recipe_in(program: ProgramAnswer | UnsetType) -> Recipe | None:
    """Return how to make a program that an answer names; None if it names none that is made.

    Raises
    ------
    InvalidInputError
        If what has failed is not in a BCube of its shape, with the path in an answer.
    """
    if program is UNSET or program.generator == LISTED:
        return None
    recipe = Recipe(program.generator, program.shape)
    if not isinstance(program, ProgramAround) or program.failed is UNSET:
        return recipe
    path = "synchronisation.program"
    if len(program.shape) < 2:
        raise InvalidInputError(f"{path}.shape", "expected n and k, got 1 number")
    failed = failures_of(BCube(*program.shape[:2]), program.failed, f"{path}.failed")
    return recipe._replace(failed=failed)


def check_program(program: ProgramAnswer | UnsetType, ranks: int) -> None:
    """Refuse a program that cannot be made, or is for other ranks than the plan.

    Raises
    ------
    InvalidInputError
        With the path in an answer.
    """
    recipe = recipe_in(program)
    if recipe is None:
        return
    path = "synchronisation.program"
    with inside(path):
        known_method(recipe.generator, GENERATORS, "generator")
        stated = ranks_of(recipe)
    if stated != ranks:
        raise InvalidInputError(f"{path}.shape", f"expected one for {ranks} ranks, got {stated}")
