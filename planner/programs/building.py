"""Builds programs from the contents of plans, which come typed or as answers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple, Protocol

from planner.model.errors import InvalidInputError
from planner.model.validation import shown
from planner.programs.forms import Batch, Direction, GradientProgram, Piece, ShardProgram
from planner.solving.transfers import Kind


class Layers(NamedTuple):
    """One direction of a plan of `ibatch`: ranges of layers, and the layers' names and sizes."""

    direction: str
    batches: Sequence[tuple[int, int]]
    names: Sequence[Sequence[str]] | None
    sizes: Sequence[int] | None = None


class Timed(Protocol):
    """The times at which a plan has a transfer ready, start and end."""

    @property
    def ready_ns(self) -> int:
        """When what it sends is ready."""

    @property
    def start_ns(self) -> int:
        """When it starts."""

    @property
    def end_ns(self) -> int:
        """When it ends."""


def gradients(
    batches: Iterable[Batch], times: Sequence[Timed], method: str, *, barrier: bool, traffic: float
) -> GradientProgram:
    """Return the program of a plan of `caramel`; its transfers have to be all-reduces."""
    if traffic != 1:
        raise InvalidInputError(
            "method", f"{method} sends through parameter servers: expected all-reduces"
        )
    return GradientProgram(_firm(batches, times), barrier)


def _firm(batches: Iterable[Batch], times: Sequence[Timed]) -> tuple[Batch, ...]:
    """Mark the batches that the network idles for although a later batch is ready."""
    behind = list(accumulate((time.ready_ns for time in reversed(times)), min))[::-1]
    ends = [0, *(time.end_ns for time in times)]
    return tuple(
        replace(batch, firm=end < time.start_ns and behind[place] < time.start_ns)
        for place, (batch, time, end) in enumerate(zip(batches, times, ends, strict=False))
    )


def transfers(
    rows: Iterable[tuple[Kind, Batch]], times: Sequence[Timed], *, barrier: bool
) -> GradientProgram | ShardProgram:
    """Return the program of a plan of `iteration`: all-reduces, or pushes and pulls, not both."""
    rows = tuple(rows)
    if all(kind == "all_reduce" for kind, _ in rows):
        return GradientProgram(_firm((batch for _, batch in rows), times), barrier)
    if barrier:
        raise InvalidInputError(
            "barrier", "expected none: what is pulled is waited for where it is read"
        )
    sharded: list[tuple[Direction, Batch]] = []
    for number, (kind, batch) in enumerate(rows):
        if kind == "all_reduce":
            path = f"transfers[{number}].kind"
            raise InvalidInputError(path, "all-reduces and pushes in one plan")
        sharded.append((kind, batch))
    return ShardProgram(tuple(sharded))


def shards(plans: Sequence[Layers]) -> ShardProgram:
    """Return the program of one or two plans of `ibatch`, at most one per direction."""
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
        batches[plan.direction] = tuple(
            Batch(
                tuple(Piece(name) for layer in table[start:stop] for name in layer),
                None if plan.sizes is None else sum(plan.sizes[start:stop]),
            )
            for start, stop in plan.batches
            if any(table[start:stop])
        )
    return ShardProgram.pushes_first(batches["pull"], batches["push"])


def through_a_driver(method: str) -> InvalidInputError:
    """Return the error for a plan of `bigdl` in which nodes own no slices."""
    return InvalidInputError("method", f"{method} goes through a driver: expected slices and pulls")
