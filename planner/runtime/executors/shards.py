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
`optimisers.sliced` says of rounding). A gradient that is missing, that comes twice, or that is
changed after it was sent ends the step with an error.

Complexity. In either direction each rank sends (N-1)/N of the bytes of all parameters, and less
than N elements more for each parameter that cannot be cut evenly. Beside the parameters and their
gradients, a rank keeps 1/N of the optimiser's state and of the gradients' means, and room for two
messages, of an eighth of the parameters' size each or 1 MiB: a larger batch is cut.

Source. Wang, Pi and Zhou, "Scalable Distributed DL Training: Batching Communication and
Computation"; a slice of every parameter on each rank is how ours shares the servers' work.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import torch
from torch import distributed, nn
from torch.optim import Optimizer

from planner.errors import InvalidPlanError
from planner.programs import Batch, Piece, ShardProgram
from planner.runtime.collectives.halves import Halves
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.collected import Taken
from planner.runtime.executors.columns import SliceMessage, messages_of, slice_of
from planner.runtime.executors.sliced import SlicedExecutor
from planner.runtime.model.parameters import check_cover, named
from planner.runtime.optimisers.sliced import check_elementwise
from planner.runtime.world.world import World

__all__ = ["ShardExecutor"]

_SHARE = 8
_LEAST_BYTES = 2**20
"""A batch larger than an eighth of all parameters, and than this, leaves in several messages."""


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
    interpreter : Interpreter, optional
        By the halves of whose program shards are summed up and handed out; by default in a direct
        exchange and by gloo's all-gather.
    """

    def __init__(
        self,
        model: nn.Module,
        program: ShardProgram,
        optimizer: Optimizer,
        world: World,
        interpreter: Interpreter | None = None,
    ) -> None:
        super().__init__(model, program, optimizer, world, interpreter.name if interpreter else "")
        self._halves = Halves(interpreter) if interpreter else None
        pulls, pushes = self._trained(program)
        size = sum(parameter.numel() * parameter.element_size() for parameter in self.names)
        most = max(size // _SHARE, _LEAST_BYTES)
        self._pulls, self._pushes = (
            [messages_of(batch, self.parameters, world.size, most) for batch in batches]
            for batches in (pulls, pushes)
        )
        sizes = [
            message.size_bytes for messages in self._pulls + self._pushes for message in messages
        ]
        self._room = torch.zeros(2, max(sizes), dtype=torch.uint8)
        self._pulled = [_parameters(messages) for messages in self._pulls]
        self._batch_of = {
            parameter: n for n, batch in enumerate(self._pulled) for parameter in batch
        }
        slices = [slice_of(parameter, world.rank, world.size) for parameter in self._batch_of]
        slices = [own for own in slices if len(own)]
        self._means = {
            own.parameter: torch.zeros(len(own), dtype=own.parameter.dtype) for own in slices
        }
        self.begin([_parameters(messages) for messages in self._pushes], slices)
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
            Ticket(
                partial(self._gather, messages), self.steps, number, ready=True, direction="pull"
            )
            for number, messages in enumerate(self._pulls)
        ]
        self.channel.submit(self._pulling)
        self.gate.pending = set(self.names)
        self._open(self.steps + 1)

    def finish_one(self, parameter: nn.Parameter) -> None:
        """Put in place a parameter, and those that travel with it, once they have arrived."""
        number = self._batch_of[parameter]
        self.channel.wait(self._pulling[number])
        for companion in self._pulled[number]:
            self.put_in_place(companion, number)

    def finish_all(self) -> None:
        """Put all pending parameters in place once they have arrived."""
        for batch in self._pulled:
            for parameter in batch:
                if parameter in self.gate.pending:
                    self.finish_one(parameter)

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
                partial(self._exchange, messages, self.gradients.taken),
                step,
                number,
                ready=not messages,
                direction="push",
            )
            for number, messages in enumerate(self._pushes)
        ]
        self.channel.submit(self._pushing)

    def _exchange(self, messages: Iterable[SliceMessage], gradients: Taken) -> None:
        """Give each rank its slices of the gradients, and add up this rank's."""
        rank, ranks = self.world.rank, self.world.size
        for message in messages:
            sent, received = map(message.matrix, self._room)
            for columns in message.columns:
                taken = gradients[self.gradients.index[columns.parameter]]
                assert taken is not None
                for place, part in columns.parts(sent, taken[0].detach().reshape(-1)):
                    torch.mul(part, 1 / ranks, out=place)
            if self._halves is not None:
                received[0] = self._halves.scatter(sent, rank)
            else:
                distributed.all_to_all_single(received.view(-1), sent.view(-1), group=self.group)
                # In the order of the ranks, whoever sent first: sums are the same bits in every
                # run. The channel alone uses the room, one message at a time.
                for row in received[1:]:
                    received[0] += row
            for columns in message.columns:
                first, last = columns.own(rank, ranks)
                if first < last:
                    mean = received[0, columns.place : columns.place + last - first]
                    self._means[columns.parameter][first:last] = mean

    def _gather(self, messages: Iterable[SliceMessage]) -> None:
        """Write all ranks' slices into the parameters."""
        rank, ranks = self.world.rank, self.world.size
        for message in messages:
            # Parameters may be written here, in the channel's thread: all of them are pending, and
            # the gate lets nobody read one before `finish_one` has waited for its batch.
            matrix = message.matrix(self._room[0])
            for columns in message.columns:
                first, last = columns.own(rank, ranks)
                start = slice_of(columns.parameter, rank, ranks).start
                own = self.flats[columns.parameter][start + first : start + last]
                matrix[rank, columns.place : columns.place + last - first] = own
            if self._halves is not None:
                self._halves.gather(matrix, rank)
            else:
                distributed.all_gather(list(matrix.unbind()), matrix[rank], group=self.group)
            for columns in message.columns:
                for place, part in columns.parts(matrix, self.flats[columns.parameter]):
                    part.copy_(place)


def _parameters(messages: Iterable[SliceMessage]) -> tuple[nn.Parameter, ...]:
    return tuple(
        dict.fromkeys(columns.parameter for message in messages for columns in message.columns)
    )
