"""From what plans of each family say to programs, whether they come typed or as answers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from planner.collectives.recipes import Recipe
from planner.errors import InvalidInputError
from planner.programs.forms import Batch, GradientProgram, Piece, ShardProgram
from planner.validation import shown

__all__ = ["Layers", "gradients", "shards", "through_a_driver", "transfers"]


class Layers(NamedTuple):
    """What a plan of `ibatch` says of one direction: ranges of layers, and what layers have."""

    direction: str
    batches: Sequence[tuple[int, int]]
    names: Sequence[Sequence[str]] | None


def gradients(
    batches: Iterable[Batch], method: str, *, barrier: bool, traffic: float
) -> GradientProgram:
    """Return the program of a plan of `caramel`.

    Raises
    ------
    InvalidInputError
        If its transfers are no all-reduces.
    """
    if traffic != 1:
        raise InvalidInputError(
            "method", f"{method} sends through parameter servers: expected all-reduces"
        )
    return GradientProgram(tuple(batches), barrier)


def transfers(
    rows: Iterable[tuple[str, Batch]], *, barrier: bool, collective: Recipe | None
) -> GradientProgram | ShardProgram:
    """Return the program of a plan of `iteration`, whose batches each have a kind.

    Raises
    ------
    InvalidInputError
        If all-reduces and pushes are mixed, or a parameter is cut that is pushed or pulled.
    """
    rows = tuple(rows)
    if all(kind == "all_reduce" for kind, _ in rows):
        return GradientProgram(tuple(batch for _, batch in rows), barrier, collective)
    for number, (kind, batch) in enumerate(rows):
        path = f"transfers[{number}]"
        if kind == "all_reduce":
            raise InvalidInputError(f"{path}.kind", "all-reduces and pushes in one plan")
        if any(piece != Piece(piece.parameter) for piece in batch.pieces):
            raise InvalidInputError(
                f"{path}.part",
                "an executor of shards sends whole parameters: plan with --mode replicated, or "
                "by method ibatch",
            )
    pulls, pushes = (
        tuple(batch for kind, batch in rows if kind == direction) for direction in ("pull", "push")
    )
    return ShardProgram(pulls, pushes, collective)


def shards(plans: Sequence[Layers]) -> ShardProgram:
    """Return the program of one or two plans of `ibatch`.

    Raises
    ------
    InvalidInputError
        If they are not one for each direction, or do not say which parameters layers have.
    """
    if len(plans) > 2 or len({plan.direction for plan in plans}) < len(plans):
        raise InvalidInputError("direction", "expected at most one plan to pull and one to push")
    table = plans[0].names
    if any(plan.names != table for plan in plans):
        raise InvalidInputError("layer_parameters", "the two plans are about different layers")
    if table is None:
        raise InvalidInputError(
            "layer_parameters",
            "missing: an executor has to know which parameters a layer has; plan with planner "
            "compare and a profile that names them, or put layer_parameters into the request",
        )
    names = [name for layer in table for name in layer]
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InvalidInputError("layer_parameters", f"{shown(repeated[0])} is in two layers")
    every = Batch(tuple(map(Piece, names)))
    batches: dict[str, tuple[Batch, ...]] = {"pull": (every,), "push": (every,)}
    for plan in plans:
        pieces = [
            tuple(Piece(name) for layer in table[start:stop] for name in layer)
            for start, stop in plan.batches
        ]
        batches[plan.direction] = tuple(Batch(group) for group in pieces if group)
    return ShardProgram(batches["pull"], batches["push"])


def through_a_driver(method: str) -> InvalidInputError:
    """Return the error for a plan of `bigdl` in which nodes own no slices."""
    return InvalidInputError("method", f"{method} goes through a driver: expected slices and pulls")
