"""What executors follow: which bytes of which parameters travel together, in which order.

`Piece` is the one form in which bytes of a parameter stand between a plan and an executor.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal, NamedTuple, Self, TypeVar

from planner.collectives.recipes import Recipe

__all__ = [
    "Batch",
    "Direction",
    "GradientProgram",
    "Piece",
    "Program",
    "ShardProgram",
    "ShardedUnit",
    "SliceProgram",
    "UnitProgram",
    "digest",
    "piece_of",
    "with_pieces",
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
        In the order in which they lie in the message; cut ones of all-reduces may lie at its ends.
    size_bytes : int or None
        Their size, where the plan says it.
    depth : int
        Chunks in flight at once.
    collective : Recipe or None
        By which program it is summed up, or by which half of it; None: the plan leaves it open.
    firm : bool
        Whether batches behind it wait for it even where they are ready before: the plan lets the
        network idle for it.
    """

    pieces: tuple[Piece, ...]
    size_bytes: int | None = None
    depth: int = 1
    collective: Recipe | None = None
    firm: bool = False


@dataclass(frozen=True, slots=True)
class GradientProgram:
    """Gradients are all-reduced batch by batch, in this order.

    Attributes
    ----------
    batches : tuple of Batch
        In transfer order.
    barrier : bool
        Whether the next forward pass waits for all of them; else for each where it is read.
    """

    batches: tuple[Batch, ...]
    barrier: bool = False


Direction = Literal["push", "pull"]


@dataclass(frozen=True, slots=True)
class ShardProgram:
    """Each rank keeps and updates a shard of every parameter.

    Gradients are pushed batch by batch behind the backward pass, and parameters pulled batch by
    batch ahead of the next forward pass; the last pushes may come between the first pulls.

    Attributes
    ----------
    transfers : tuple of (str, Batch)
        In transfer order, each with its direction; pushes and pulls may cut parameters in different
        places.
    """

    transfers: tuple[tuple[Direction, Batch], ...]

    @classmethod
    def pushes_first(cls, pulls: Iterable[Batch], pushes: Iterable[Batch]) -> Self:
        """Return the program that pulls nothing before all is pushed."""
        return cls((*(("push", batch) for batch in pushes), *(("pull", batch) for batch in pulls)))

    @property
    def pulls(self) -> tuple[Batch, ...]:
        """What is pulled, in transfer order."""
        return tuple(batch for direction, batch in self.transfers if direction == "pull")

    @property
    def pushes(self) -> tuple[Batch, ...]:
        """What is pushed, in transfer order."""
        return tuple(batch for direction, batch in self.transfers if direction == "push")

    @property
    def batches(self) -> tuple[Batch, ...]:
        """All of them."""
        return tuple(batch for _, batch in self.transfers)


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


class ShardedUnit(NamedTuple):
    """Modules whose parameters are gathered together: one call of ``fully_shard``.

    Attributes
    ----------
    modules : tuple of str
        Their names, in the order in which they are computed.
    parameter_bytes, gradient_bytes : int
        What is gathered and scattered of them.
    reshard : bool
        Whether parameters are freed after the forward pass, and gathered again.
    recompute : bool
        Whether each of the modules is computed again in the backward pass.
    forward_prefetch, backward_prefetch : tuple of int
        Units whose gathers this one issues, in this order, when its own parameters have arrived.
    """

    modules: tuple[str, ...]
    parameter_bytes: int
    gradient_bytes: int
    reshard: bool
    recompute: bool
    forward_prefetch: tuple[int, ...]
    backward_prefetch: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnitProgram:
    """Units are gathered in order of use, computed, and their gradients scattered.

    Attributes
    ----------
    units : tuple of ShardedUnit
        In the order of the forward pass.
    replicas, shards : int
        The mesh.
    buffers : int
        Reduce-scatters whose input is kept at most.
    separate : bool
        Whether reduce-scatters have a communicator of their own.
    streams : tuple of (tuple of int, tuple of int)
        Of a plan that FSDP2's own streams carry out, both lists of each unit there, in place of its
        own, which are for devices without streams; empty of all others.
    """

    units: tuple[ShardedUnit, ...]
    replicas: int
    shards: int
    buffers: int = 1
    separate: bool = False
    streams: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()


Program = GradientProgram | ShardProgram | SliceProgram | UnitProgram
ProgramT = TypeVar("ProgramT", bound=Program)


def piece_of(parameter: str, start: int, stop: int, size: int | None) -> Piece:
    """Return bytes start … stop-1 of a parameter of so many, in the form that is the only one."""
    return Piece(parameter) if (start, stop) == (0, size) else Piece(parameter, start, stop)


def with_pieces(program: ProgramT, change: Callable[[Piece], Piece | None]) -> ProgramT:
    """Return a program with every piece changed, without those that change to None."""

    def changed(batch: Batch) -> Batch:
        return replace(batch, pieces=tuple(filter(None, map(change, batch.pieces))))

    if isinstance(program, GradientProgram):
        return replace(program, batches=tuple(map(changed, program.batches)))
    if isinstance(program, ShardProgram):
        transfers = tuple((direction, changed(batch)) for direction, batch in program.transfers)
        return replace(program, transfers=transfers)
    return program


def digest(*parts: object) -> str:
    """Return a hash of frozen values, the same in every process."""
    return sha256(repr(parts).encode()).hexdigest()
