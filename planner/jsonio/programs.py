"""The collective program in answers: its JSON form, and its validation.

A program of many ranks is long, so an answer gives the generator's name and shape.
`planner.families.bml.program.made` makes the program from these.
"""

from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families.bml.program import GENERATORS, REPLAN, made, ranks_of
from planner.families.collectives import check
from planner.families.collectives.recipes import Recipe
from planner.jsonio.links import FailedDocument, failed_document, failures_of
from planner.jsonio.types import says
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube
from planner.model.validation import inside, one_of, shown

MAX_CHECKED = 2**12
"""Largest number of ranks for which the program is checked (takes a few milliseconds)."""

MAX_ROUTED = 2**7
"""The same limit for programs that route pieces through other servers: one message per pair."""

_ALGORITHMS = {
    REPLAN: ("bml", "bml_rounds"),
    "bruck": ("halving_doubling",),
    "direct": ("ps", "shuffle"),
    "ps": ("ps", "shuffle"),
    "routed": ("ps", "shuffle"),
}
"""Algorithms of the generators whose name differs from the algorithm's."""

Verdict = Annotated[
    Literal["symmetry", "replay"],
    says("how it was shown to sum up every contribution once"),
]


class ProgramAnswer(Struct, frozen=True, kw_only=True):
    """The collective program that is run: its generator, and the generator's arguments."""

    generator: Annotated[str, Meta(extra_json_schema={"enum": list(GENERATORS)})]
    shape: Annotated[tuple[Annotated[int, Meta(ge=1)], ...], Meta(min_length=1)]
    checked: Verdict | UnsetType = UNSET
    failed: Annotated[FailedDocument, says("what it goes around")] | UnsetType = UNSET


@lru_cache
def program_answer(recipe: Recipe) -> ProgramAnswer | UnsetType:
    """Return the JSON form of a program, with the checker's result if the program is small."""
    program = ProgramAnswer(generator=recipe.generator, shape=recipe.shape)
    if recipe.failed:
        failed = failed_document(BCube(*recipe.shape[:2]), recipe.failed)
        program = msgspec.structs.replace(program, failed=failed)
    try:
        most = MAX_ROUTED if recipe.generator == "routed_bcube" else MAX_CHECKED
        if ranks_of(recipe) > most:
            return program
        messages = made(recipe)
    except InvalidInputError:  # too many ranks, or priced but not executable
        return UNSET
    return msgspec.structs.replace(program, checked=check(messages))


def recipe_in(program: ProgramAnswer | UnsetType) -> Recipe | None:
    """Return the recipe of an answer's program, or None if there is none.

    Raises InvalidInputError, with a path, if a failure is not in the program's BCube.
    """
    if program is UNSET:
        return None
    recipe = Recipe(program.generator, program.shape)
    if program.failed is UNSET:
        return recipe
    path = "synchronisation.program"
    if len(program.shape) < 2:
        raise InvalidInputError(f"{path}.shape", "expected n and k, got 1 number")
    failed = failures_of(BCube(*program.shape[:2]), program.failed, f"{path}.failed")
    return recipe._replace(failed=failed)


def check_program(algorithm: str, program: ProgramAnswer | UnsetType, ranks: int) -> None:
    """Check that a program is of this algorithm and number of ranks; errors carry a path."""
    recipe = recipe_in(program)
    if recipe is None:
        return
    path = "synchronisation.program"
    one_of(recipe.generator, GENERATORS, f"{path}.generator")
    name = recipe.generator.removesuffix("_bcube").removesuffix("_rails")
    unnamed = algorithm in ("none", "measured")  # these do not name an algorithm
    if not unnamed and algorithm not in _ALGORITHMS.get(name, (name,)):
        raise InvalidInputError(
            f"{path}.generator", f"expected a program of {shown(algorithm)}, got {recipe.generator}"
        )
    with inside(path):
        stated = ranks_of(recipe)
    if stated != ranks:
        raise InvalidInputError(
            f"{path}.shape", f"expected {ranks} ranks, got {stated}: {list(recipe.shape)}"
        )
