"""Programs of executors: which bytes of which parameters travel together, in which order.

`Piece` is the only form of a parameter's bytes between a plan and an executor.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal, NamedTuple, Self, TypeVar

from planner.families.collectives.recipes import Recipe


class Piece(NamedTuple):
    """Bytes start … stop-1 of a parameter's gradient; a `stop` of None is the end."""

    parameter: str
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """The contents of one transfer."""

    pieces: tuple[Piece, ...]  # in message order; in all-reduces, cut pieces may lie at the ends
    size_bytes: int | None = None  # None if the plan does not say
    depth: int = 1  # chunks in flight at once
    collective: Recipe | None = None  # program, or half, that sums up; None: left open by the plan


@dataclass(frozen=True, slots=True)
class GradientProgram:
    """Gradients are all-reduced batch by batch, in this order.

    With a `barrier` the next forward pass waits for all batches at its start; without, it waits for
    each batch where it reads one of the batch's parameters.
    """

    batches: tuple[Batch, ...]
    barrier: bool = False


Direction = Literal["push", "pull"]


@dataclass(frozen=True, slots=True)
class ShardProgram:
    """Each rank keeps and updates a shard of every parameter.

    Gradients are pushed batch by batch during the backward pass, and parameters are pulled batch by
    batch ahead of the next forward pass. The last pushes may come between the first pulls; pushes
    and pulls may cut parameters in different places. `transfers` are in transfer order.
    """

    transfers: tuple[tuple[Direction, Batch], ...]

    @classmethod
    def pushes_first(cls, pulls: Iterable[Batch], pushes: Iterable[Batch]) -> Self:
        """Return the program with all pushes before all pulls."""
        return cls((*(("push", batch) for batch in pushes), *(("pull", batch) for batch in pulls)))

    @property
    def pulls(self) -> tuple[Batch, ...]:
        """The pull batches, in transfer order."""
        return tuple(batch for direction, batch in self.transfers if direction == "pull")

    @property
    def pushes(self) -> tuple[Batch, ...]:
        """The push batches, in transfer order."""
        return tuple(batch for direction, batch in self.transfers if direction == "push")

    @property
    def batches(self) -> tuple[Batch, ...]:
        """All batches, in transfer order."""
        return tuple(batch for _, batch in self.transfers)


@dataclass(frozen=True, slots=True)
class SliceProgram:
    """Each rank sums up one slice of the gradient, updates it and hands it out.

    `slices` holds the first element of each rank's slice and the element after its last;
    `pull_order` holds for each rank the ranks it pulls from, in order.
    """

    slices: tuple[tuple[int, int], ...]
    pull_order: tuple[tuple[int, ...], ...]


class ShardedUnit(NamedTuple):
    """Modules whose parameters are gathered together: one call of ``fully_shard``.

    The prefetch lists are the units whose gathers this unit issues, in this order, when its own
    parameters have arrived.
    """

    modules: tuple[str, ...]  # their names, in the order of computation
    parameter_bytes: int  # gathered by the unit
    gradient_bytes: int  # scattered by the unit
    reshard: bool  # parameters are freed after the forward pass, and gathered again
    recompute: bool  # the modules are computed again in the backward pass
    forward_prefetch: tuple[int, ...]
    backward_prefetch: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnitProgram:
    """Units are gathered in order of use, computed, and their gradients scattered.

    If FSDP2's own streams carry out the plan, `streams` holds the forward and backward prefetch
    list of each unit there. The units' own lists are then for devices without streams.
    """

    units: tuple[ShardedUnit, ...]  # in the order of the forward pass
    replicas: int  # of the device mesh, as `shards`
    shards: int
    buffers: int = 1  # most reduce-scatters whose inputs are kept
    separate: bool = False  # reduce-scatters have a communicator of their own
    streams: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()


Program = GradientProgram | ShardProgram | SliceProgram | UnitProgram
ProgramT = TypeVar("ProgramT", bound=Program)


def piece_of(parameter: str, start: int, stop: int, size: int | None) -> Piece:
    """Return bytes start … stop-1 of a parameter of `size` bytes, in the unique form."""
    return Piece(parameter) if (start, stop) == (0, size) else Piece(parameter, start, stop)


def with_pieces(program: ProgramT, change: Callable[[Piece], Piece | None]) -> ProgramT:
    """Return the program with every piece changed; pieces that `change` makes None are left out."""

    def changed(batch: Batch) -> Batch:
        return replace(batch, pieces=tuple(filter(None, map(change, batch.pieces))))

    if isinstance(program, GradientProgram):
        return replace(program, batches=tuple(map(changed, program.batches)))
    if isinstance(program, ShardProgram):
        transfers = tuple((direction, changed(batch)) for direction, batch in program.transfers)
        return replace(program, transfers=transfers)
    return program


def digest(*parts: object) -> str:
    """Return a hash of frozen values that is the same in every process."""
    return sha256(repr(parts).encode()).hexdigest()
