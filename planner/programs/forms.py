"""What executors follow: which bytes of which parameters travel together, in which order.

`Piece` is the one form in which bytes of a parameter stand between a plan and an executor.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from planner.collectives.recipes import Recipe

__all__ = [
    "Batch",
    "GradientProgram",
    "Piece",
    "Program",
    "ShardProgram",
    "SliceProgram",
    "digest",
    "piece_of",
]


class Piece(NamedTuple):
    """Bytes start … stop-1 of a parameter's gradient; a `stop` of None is its end."""

    parameter: str
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transfer carries.

    Attributes
    ----------
    pieces : tuple of Piece
        In the order in which they lie in the message.
    size_bytes : int or None
        Their size, where the plan says it.
    depth : int
        Chunks in flight at once.
    """

    pieces: tuple[Piece, ...]
    size_bytes: int | None = None
    depth: int = 1


@dataclass(frozen=True, slots=True)
class GradientProgram:
    """Gradients are all-reduced batch by batch, in this order.

    Attributes
    ----------
    batches : tuple of Batch
        In transfer order.
    barrier : bool
        Whether the next forward pass waits for all of them; else for each where it is read.
    collective : Recipe or None
        By which program they are summed up; None: the plan leaves it open.
    """

    batches: tuple[Batch, ...]
    barrier: bool = False
    collective: Recipe | None = None


@dataclass(frozen=True, slots=True)
class ShardProgram:
    """Each rank keeps and updates a shard of every parameter.

    Parameters are pulled batch by batch ahead of the forward pass, gradients pushed batch by batch
    behind the backward pass.

    Attributes
    ----------
    pulls, pushes : tuple of Batch
        In transfer order; all pieces are whole parameters.
    collective : Recipe or None
        By the halves of which program; None: the plan leaves it open.
    """

    pulls: tuple[Batch, ...]
    pushes: tuple[Batch, ...]
    collective: Recipe | None = None


@dataclass(frozen=True, slots=True)
class SliceProgram:
    """Each rank sums up one slice of the gradient, updates it and hands it out.

    Attributes
    ----------
    slices : tuple of (int, int)
        First element of each rank's slice, and the one after its last.
    pull_order : tuple of tuple of int
        For each rank, the ranks in the order in which it pulls from them.
    """

    slices: tuple[tuple[int, int], ...]
    pull_order: tuple[tuple[int, ...], ...]


Program = GradientProgram | ShardProgram | SliceProgram


def piece_of(parameter: str, start: int, stop: int, size: int | None) -> Piece:
    """Return bytes start … stop-1 of a parameter of so many, in the form that is the only one."""
    return Piece(parameter) if (start, stop) == (0, size) else Piece(parameter, start, stop)


def digest(*parts: object) -> str:
    """Return a hash of frozen values, the same in every process."""
    return sha256(repr(parts).encode()).hexdigest()
