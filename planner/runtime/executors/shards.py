"""Executor of sharded training, with a parameter server for a slice on every rank.

Method: Each rank keeps and updates a slice of every cell of the parameters (`columns`). A push
sends each rank its slices of the gradients once they are complete. `step` releases the pulls;
before the first pull after pushes, the channel's thread updates this rank's slices. A pull gathers
the slices of all ranks; the next forward pass waits for it where it reads a parameter.
Guarantee: Batches keep the planned order on every rank. After `finish` the weights are those of
plain data-parallel training. Faulty gradients stop the step. Limits and memory: docs/runtime.md.
Complexity: Each rank sends (N-1)/N of the parameters per direction, plus padding.
Source: Wang, Pi and Zhou, "Scalable Distributed DL Training: Batching Communication and
Computation"; a slice of every cell per rank shares the servers' work (own).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.families.collectives.recipes import Recipe
from planner.model.errors import InvalidPlanError
from planner.programs import Batch, ShardProgram, with_pieces
from planner.runtime.collectives.halves import Halves, ProgramHalves, in_turn
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.columns import (
    SlicedExecutor,
    SliceMessage,
    cells_in,
    cells_of,
    messages_of,
    slice_of,
)
from planner.runtime.model.parameters import Elements, check_cover, named
from planner.runtime.optimisers.sliced import check_elementwise
from planner.runtime.world.world import AT_ONCE, World

# ---
# Push and pull one batch of shards: copy into messages, exchange, copy out.
#
# Method: Two messages of a batch are in flight at a time (`halves.in_turn`), so that one is copied
# while another travels. Complexity: Each element is copied into a message and out of it; in a push,
# out of it only on its rank.


def room_for(messages: Sequence[SliceMessage]) -> Tensor:
    """Return buffers for the largest message, one pair for each message in flight."""
    largest = max(message.size_bytes for message in messages)
    return torch.zeros(AT_ONCE, 2, largest, dtype=torch.uint8)


def push(
    halves: Halves,
    messages: Sequence[SliceMessage],
    rank: int,
    room: Tensor,
    gradients: Mapping[nn.Parameter, Tensor],
    means: Mapping[Elements, Tensor],
) -> None:
    """Write the means of all ranks' gradients, in this rank's slices of cells, into `means`."""

    def begun(message: SliceMessage, sent: Tensor, received: Tensor) -> Callable[[], None]:
        for columns in message.columns:
            gradient = gradients[columns.cell.parameter].detach()
            for place, part in columns.parts(sent, gradient):
                torch.mul(part, 1 / message.ranks, out=place)
        added = halves.scatter(sent, rank, received)

        def keep() -> None:
            total = added()
            for columns in message.columns:
                first, last = columns.own(rank, message.ranks)
                if first < last:
                    mean = total[columns.place : columns.place + last - first]
                    means[columns.cell][first:last] = mean

        return keep

    in_turn(
        begun(message, *map(message.matrix, room[number % AT_ONCE]))
        for number, message in enumerate(messages)
    )


def pull(
    halves: Halves,
    messages: Sequence[SliceMessage],
    rank: int,
    room: Tensor,
    flats: Mapping[nn.Parameter, Tensor],
) -> None:
    """Write all ranks' slices into `flats`, the parameters' values, which hold this rank's."""

    def begun(message: SliceMessage, matrix: Tensor) -> Callable[[], None]:
        for columns in message.columns:
            first, last = columns.own(rank, message.ranks)
            flat = flats[columns.cell.parameter]
            own = slice_of(columns.cell, rank, message.ranks).of(flat)[first:last]
            matrix[rank, columns.place : columns.place + last - first] = own
        arrived = halves.gather(matrix, rank)

        def put() -> None:
            arrived()
            for columns in message.columns:
                for place, part in columns.parts(matrix, flats[columns.cell.parameter]):
                    part.copy_(place)

        return put

    in_turn(
        begun(message, message.matrix(room[number % AT_ONCE, 0]))
        for number, message in enumerate(messages)
    )


class ShardExecutor(SlicedExecutor):
    """Executes a `ShardProgram`.

    Parameters
    ----------
    model, program, world
        See `Executor`. Frozen parameters in the program are skipped.
    optimizer : Optimizer
        An elementwise one of torch's, before its first step. Until `close`, its groups hold this
        rank's slices in place of the parameters.
    interpreters : mapping from Recipe to Interpreter, optional
        Collective programs whose halves push and pull the batches that name them; other batches are
        exchanged directly.
    """

    def __init__(
        self,
        model: nn.Module,
        program: ShardProgram,
        optimizer: Optimizer,
        world: World,
        interpreters: Mapping[Recipe | None, Interpreter] = MappingProxyType({}),
    ) -> None:
        super().__init__(model, program, optimizer, world, "")
        gloo, trained = Halves(self.group), self._trained(program)

        def halves_for(batch: Batch) -> Halves:
            own = interpreters.get(batch.collective)
            return ProgramHalves(own, batch.depth) if own else gloo

        cells = cells_of(trained.batches, self.parameters)
        self._transfers = [
            (direction, halves_for(batch), messages_of(batch, self.parameters, cells, world.size))
            for direction, batch in trained.transfers
        ]
        every = [message for _, _, messages in self._transfers for message in messages]
        self._room = room_for(every)
        pulls, pushes = (
            [_parameters(messages) for way, _, messages in self._transfers if way == direction]
            for direction in ("pull", "push")
        )
        self._last = {
            parameter: number for number, parameters in enumerate(pulls) for parameter in parameters
        }
        """The last pull that carries part of each parameter."""
        self._ending: list[list[nn.Parameter]] = [[] for _ in pulls]
        for parameter, number in self._last.items():
            self._ending[number].append(parameter)
        self._cells = [cell for parameter in self._last for cell in cells[parameter]]
        slices = self._slices(world.rank)
        self._numbers = {cell: number for number, (cell, _) in enumerate(slices)}
        """By cell: the number of this rank's slice, unless it is empty."""
        self._brought = [
            self._slices_in(messages) for way, _, messages in self._transfers if way == "push"
        ]
        """By push: the numbers of this rank's slices whose gradients it carries."""
        self._means = {
            cell: torch.zeros(len(own), dtype=own.parameter.dtype) for cell, own in slices
        }
        self.begin(pushes, (own for _, own in slices))
        self._tickets: list[Ticket] = []
        self._pushing: list[Ticket] = []
        self._leaving: list[dict[nn.Parameter, Tensor]] = []
        self._open(0)

    def check(self, program: ShardProgram) -> None:
        """Check that the plan carries each element once per direction, the push before the pull."""
        check_elementwise(self.optimizer)
        trained = self._trained(program)
        check_cover(trained.pulls, self.parameters, "pull.batches")
        check_cover(trained.pushes, self.parameters, "push.batches")
        cells, pushed, pulls = cells_of(trained.batches, self.parameters), set[Elements](), 0
        for direction, batch in trained.transfers:
            carried = list(cells_in(batch.pieces, self.parameters, cells))
            if direction == "push":
                pushed.update(carried)
                continue
            for cell in carried:
                if cell not in pushed:
                    name = self.names[cell.parameter]
                    raise InvalidPlanError(
                        f"pull.batches[{pulls}]", f"pulls {name} before all of it was pushed"
                    )
            pulls += 1

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        """Release the batches that this gradient completes."""
        complete, gradient = self.gradients.take(parameter), parameter.grad
        assert gradient is not None
        for number in self.gradients.batches_of[self.gradients.index[parameter]]:
            self._leaving[number][parameter] = gradient
        for number in complete:
            self.channel.release(self._pushing[number])

    def update(self) -> None:
        """Release the pulls and the updates before them; submit the next step's transfers."""
        self.gradients.check()
        self.remember()
        self.pulling = [ticket for ticket in self._tickets if ticket.direction == "pull"]
        for ticket in self._tickets:
            if not ticket.ready:
                self.channel.release(ticket)
        self._open(self.steps + 1)

    def finish_one(self, parameter: nn.Parameter) -> None:
        """Wait for a parameter's last pull, and finish the parameters that it completes."""
        number = self._last[parameter]
        self.channel.wait(self.pulling[number])
        for companion in self._ending[number]:
            self.put_in_place(companion, number)

    def _slices(self, rank: int) -> list[tuple[Elements, Elements]]:
        """Return the cells of which a rank has a non-empty slice, with that slice."""
        every = ((cell, slice_of(cell, rank, self.world.size)) for cell in self._cells)
        return [(cell, own) for cell, own in every if len(own)]

    def _trained(self, program: ShardProgram) -> ShardProgram:
        """Return the program without frozen parameters."""
        frozen = {name for name, _ in named(self.model)} - self.parameters.keys()
        return with_pieces(program, lambda piece: None if piece.parameter in frozen else piece)

    def _open(self, step: int) -> None:
        """Submit a step's transfers, and the updates before pulls."""
        self.gradients.begin()
        self._tickets, self._pushing, self._leaving = [], [], []
        pulls, pushed = 0, list[int]()
        for direction, halves, messages in self._transfers:
            if direction == "push":
                leaving: dict[nn.Parameter, Tensor] = {}
                work = partial(self._push, halves, messages, leaving)
                number = len(self._pushing)
                pushed += self._brought[number]
                ticket = Ticket(work, step, number, direction, ready=not messages)
                self._pushing.append(ticket)
                self._leaving.append(leaving)
            else:
                if pushed:
                    work = partial(self._update, pushed)
                    self._tickets.append(Ticket(work, step, pulls, kind="update"))
                    pushed = []
                ticket = Ticket(partial(self._pull, halves, messages), step, pulls, direction)
                pulls += 1
            self._tickets.append(ticket)
        self.channel.submit(self._tickets)

    def _slices_in(self, messages: Iterable[SliceMessage]) -> list[int]:
        """Return the numbers of this rank's slices that messages carry."""
        cells = dict.fromkeys(columns.cell for message in messages for columns in message.columns)
        return [self._numbers[cell] for cell in cells if cell in self._numbers]

    def _update(self, numbers: Sequence[int]) -> None:
        """Update this rank's slices with the pushed gradients."""
        means = list(self._means.values())
        self.sliced.step({number: means[number] for number in numbers})

    def _push(
        self,
        halves: Halves,
        messages: Sequence[SliceMessage],
        gradients: dict[nn.Parameter, Tensor],
    ) -> None:
        """Send each rank its slices of the gradients, and sum this rank's."""
        push(halves, messages, self.world.rank, self._room, gradients, self._means)
        gradients.clear()  # often the last reference, so their memory is freed

    def _pull(self, halves: Halves, messages: Sequence[SliceMessage]) -> None:
        """Write all ranks' slices into the parameters.

        Writing in the channel's thread is safe: all parameters are pending, and the gate blocks
        reads until `finish_one` has waited for the last batch.
        """
        pull(halves, messages, self.world.rank, self._room, self.flats)


def _parameters(messages: Iterable[SliceMessage]) -> tuple[nn.Parameter, ...]:
    return tuple(
        dict.fromkeys(columns.cell.parameter for message in messages for columns in message.columns)
    )
