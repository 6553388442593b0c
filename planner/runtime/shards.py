"""Pulls sharded parameters ahead of the forward pass, and pushes gradients behind the backward one.

Problem. Execute two lists of batches (iBatch's, or any other) where every rank is the parameter
server of one shard: parameters have to arrive before the forward pass reads them, gradients leave
as soon as the backward pass has them.

Method. Each parameter's elements are cut into as many slices of equal length as there are ranks
(the last ones may be shorter or empty), and each rank keeps and updates its slice of every
parameter. A push batch sends each rank its slices of the gradients, divided by the number of
ranks, once all of them are complete; the receiver adds them up in the order of the ranks. `step`
waits for the pushes, updates this rank's slices, and asks for all pulls. A pull batch gathers
everybody's slices; the next forward pass waits for it where it first reads one of its parameters.

Guarantee. Batches travel in the planned order on every rank. After `finish`, weights are those of
plain data-parallel training; bit by bit where the order of sums is the same (but for what
`planner.runtime.sliced` says of rounding). A gradient that is missing, that comes twice, or that is
changed after it was sent ends the step with an error.

Complexity. In either direction each rank sends (N-1)/N of the bytes of all parameters, and less
than N elements more for each parameter that cannot be cut evenly. Messages take three times the
memory of the parameters, the optimiser's state 1/N of what it takes elsewhere.

Source. Wang, Pi and Zhou, "Scalable Distributed DL Training: Batching Communication and
Computation"; a slice of every parameter on each rank is how ours shares the servers' work.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from planner.errors import InvalidPlanError
from planner.programs import Batch, Piece, ShardProgram
from planner.runtime.channel import Ticket
from planner.runtime.collected import Taken
from planner.runtime.sliced import Slice, SlicedExecutor, check_elementwise
from planner.runtime.table import by_dtype, check_cover, named
from planner.runtime.world import World

__all__ = ["ShardExecutor"]


class ShardExecutor(SlicedExecutor):
    """Executes a `ShardProgram`.

    ``executor.optimizer.state_dict()`` is the state of this rank's slices alone: a checkpoint needs
    one of every rank, and as many ranks to go on from it. `close` gives the optimiser its
    parameters back, without that state.

    Values that are written into the model's parameters between steps count, if all ranks write
    them; `finish` has to be called before.

    Parameters
    ----------
    model, program, world
        See `Executor`. Frozen parameters in the program are passed over.
    optimizer : Optimizer
        One of torch's that update each element by itself, before its first step. Until `close`, its
        groups hold this rank's slices in place of the parameters.
    """

    def __init__(
        self, model: nn.Module, program: ShardProgram, optimizer: Optimizer, world: World
    ) -> None:
        super().__init__(model, program, optimizer, world, "")
        pulls, pushes = self._trained(program)
        self._pulls = [_Rows(batch, self.parameters, world.size) for batch in pulls]
        self._pushes = [
            _Push(*(_Rows(batch, self.parameters, world.size) for _ in range(2)))
            for batch in pushes
        ]
        self._batch_of = {one: n for n, rows in enumerate(self._pulls) for one in rows.columns}
        slices: dict[nn.Parameter, Slice] = {}
        self._means: dict[nn.Parameter, Tensor] = {}
        for one, number in self._batch_of.items():
            rows = self._pulls[number]
            rows.put(one, one.detach())
            start, stop = rows.slice(one, world.rank)
            if start < stop:
                kept = rows.columns[one][world.rank, : stop - start]
                slices[one] = Slice(start, stop, nn.Parameter(kept))
        for push in self._pushes:
            for one, columns in push.received.columns.items():
                if one in slices:
                    self._means[one] = columns[0, : slices[one].stop - slices[one].start]
        self.begin([push.sent.columns for push in self._pushes], slices)
        self._pulling: list[Ticket] = []
        self._pushing: list[Ticket] = []
        self._open(0)

    def check(self, program: ShardProgram) -> None:
        """Check that the plan carries every parameter once in each direction."""
        check_elementwise(self.optimizer)
        pulls, pushes = self._trained(program)
        for path, batches in ("pull.batches", pulls), ("push.batches", pushes):
            check_cover(batches, self.parameters, path)
            for number, batch in enumerate(batches):
                for piece in batch.pieces:
                    if piece != Piece(piece.parameter):
                        raise InvalidPlanError(
                            f"{path}[{number}]", f"expected {piece.parameter} as a whole"
                        )

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        """Let the batches go whose gradients are now complete."""
        if self.gate.pending:  # parameters that the last forward pass did not read
            self.finish()
        for number in self.gradients.take(parameter):
            self.channel.release(self._pushing[number])

    def update(self) -> None:
        """Update this rank's slices once all gradients have arrived, and ask for the others'."""
        self.gradients.check()
        for ticket in self._pushing:
            self.channel.wait(ticket)
        self.gradients.forget()
        self.optimise(self._means)
        self._pulling = [
            Ticket(self._gathering(rows), self.steps, number, ready=True, direction="pull")
            for number, rows in enumerate(self._pulls)
        ]
        self.channel.submit(self._pulling)
        self.gate.pending = set(self.names)
        self._open(self.steps + 1)

    def finish_one(self, parameter: nn.Parameter) -> None:
        """Put in place a parameter, and those that travel with it, once they have arrived."""
        number = self._batch_of[parameter]
        self.channel.wait(self._pulling[number])
        rows = self._pulls[number]
        for one in rows.columns:
            self.put_in_place(one, number, partial(rows.get, one))

    def finish_all(self) -> None:
        """Put all pending parameters in place once they have arrived."""
        while self.gate.pending:
            self.finish_one(min(self.gate.pending, key=self._batch_of.__getitem__))

    def _trained(self, program: ShardProgram) -> tuple[tuple[Batch, ...], tuple[Batch, ...]]:
        """Return pulls and pushes without the parameters that are not trained."""
        frozen = {name for name, _ in named(self.model)} - self.parameters.keys()

        def without(batch: Batch) -> Batch:
            kept = tuple(piece for piece in batch.pieces if piece.parameter not in frozen)
            return replace(batch, pieces=kept)

        return tuple(map(without, program.pulls)), tuple(map(without, program.pushes))

    def _open(self, step: int) -> None:
        """Ask for a step's pushes."""
        self.gradients.begin()
        self._pushing = [
            Ticket(
                self._exchanging(push, self.gradients.taken),
                step,
                number,
                ready=not push.sent.columns,
                direction="push",
            )
            for number, push in enumerate(self._pushes)
        ]
        self.channel.submit(self._pushing)

    def _exchanging(self, push: "_Push", gradients: Taken) -> Callable[[], None]:
        def exchange() -> None:
            for parameter in push.sent.columns:
                taken = gradients[self.gradients.index[parameter]]
                assert taken is not None
                gradient = taken[0].detach()
                push.sent.put(parameter, gradient, 1 / self.world.size)
            for sent, received in zip(push.sent.matrices, push.received.matrices, strict=True):
                distributed.all_to_all_single(received.view(-1), sent.view(-1), group=self.group)
                for row in received[1:]:
                    received[0] += row

        return exchange

    def _gathering(self, rows: "_Rows") -> Callable[[], None]:
        def gather() -> None:
            for matrix in rows.matrices:
                distributed.all_gather(
                    list(matrix.unbind()), matrix[self.world.rank], group=self.group
                )

        return gather


class _Rows:
    """A batch's elements in one row for each rank; one matrix for each type of number.

    A parameter's elements lie row by row in columns of their own, the last rows padded.
    """

    def __init__(self, batch: Batch, parameters: Mapping[str, nn.Parameter], ranks: int) -> None:
        self.matrices: list[Tensor] = []
        self.columns: dict[nn.Parameter, Tensor] = {}
        for dtype, pieces in by_dtype(batch.pieces, parameters).items():
            several = [parameters[piece.parameter] for piece in pieces]
            widths = [-(-one.numel() // ranks) for one in several]
            matrix = torch.zeros(ranks, sum(widths), dtype=dtype)
            self.matrices.append(matrix)
            self.columns.update(zip(several, torch.split(matrix, widths, dim=1), strict=True))

    def put(self, parameter: nn.Parameter, values: Tensor, factor: float = 1) -> None:
        """Copy a parameter's values in, times a factor."""
        for place, part in self._parts(parameter, values.reshape(-1)):
            torch.mul(part, factor, out=place)

    def get(self, parameter: nn.Parameter, values: Tensor) -> None:
        """Copy a parameter's values into a flat tensor."""
        for place, part in self._parts(parameter, values):
            part.copy_(place)

    def slice(self, parameter: nn.Parameter, rank: int) -> tuple[int, int]:
        """Return which of a parameter's elements lie in a rank's row."""
        width = self.columns[parameter].shape[1]
        size = parameter.numel()
        return min(rank * width, size), min((rank + 1) * width, size)

    def _parts(self, parameter: nn.Parameter, values: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield parts of the columns and of flat values that belong together."""
        columns = self.columns[parameter]
        width = columns.shape[1]
        full, rest = divmod(len(values), width)
        yield columns[:full], values[: full * width].view(full, width)
        if rest:
            yield columns[full, :rest], values[full * width :]


class _Push(NamedTuple):
    """What one push batch sends, and where what it receives goes: a row from each rank."""

    sent: _Rows
    received: _Rows
