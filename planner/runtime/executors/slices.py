"""Executor of BigDL's synchronisation: each rank sums, updates and hands out one slice.

Problem: All gradients form one vector. Each rank pulls its slice of it from all other ranks in a
planned order, updates the weights there, and pulls the other slices of the weights in that order.
Method: The vector stays virtual: gradients and weights stay in place. In each turn a rank receives
from the rank it asks, and sends to the ranks that ask it. The weights' turns overlap with the next
forward pass.
Guarantee: Turns match between ranks, so no order can deadlock. Weights as in `shards`.
Complexity: 2(N-1) turns; each rank receives (N-1)/N of gradients and of weights.
Source: Venkataraman, Ding and Ermolin, "Accelerating Deep Learning Training with BigDL and Drizzle
on Apache Spark", section "Communications in BigDL".
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.families.bigdl import check_pulls
from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.programs import SliceProgram
from planner.runtime.collectives.halves import exchange
from planner.runtime.executors.sliced import Sent, SlicedExecutor, check_elementwise
from planner.runtime.model.parameters import Elements
from planner.runtime.world.world import World


class SliceExecutor(SlicedExecutor):
    """Executes a `SliceProgram` for parameters of one data type.

    In `trace` a batch is a turn: "push" of gradients, "pull" of weights.
    """

    def __init__(
        self, model: nn.Module, program: SliceProgram, optimizer: Optimizer, world: World
    ) -> None:
        super().__init__(model, program, optimizer, world, "")
        self._placed = [_placed(self.names, *bounds) for bounds in program.slices]
        dtype = next(iter(self.names)).dtype
        most = max(stop - start for start, stop in program.slices)
        self._sizes = [stop - start for start, stop in program.slices]
        self._mean = torch.zeros(self._sizes[world.rank], dtype=dtype)
        pushes, pulls, rooms = [], [], 2
        for turn, asked in enumerate(program.pull_order[world.rank]):
            asking = [
                peer
                for peer, theirs in enumerate(program.pull_order)
                if theirs[turn] == world.rank != peer
            ]
            rooms = max(rooms, 1 + len(asking))
            brought = range(len(self._placed[world.rank])) if turn == 0 else ()
            work = partial(self._add, turn, asked, asking)
            pushes.append(Sent("push", tuple(self.names), work, tuple(brought)))
            parameters = tuple(elements.parameter for elements, _ in self._placed[asked])
            pulls.append(Sent("pull", parameters, partial(self._spread, turn, asked, asking)))
        self._rooms = torch.zeros(rooms, most, dtype=dtype)
        """Row 0 receives; the others are sent."""
        own = self._placed[world.rank]
        means = [self._mean[place : place + len(elements)] for elements, place in own]
        self.begin([*pushes, *pulls], [elements for elements, _ in own], means)

    def check(self, program: SliceProgram) -> None:
        """Check that the plan fits this model and this number of ranks."""
        check_elementwise(self.optimizer)
        first = next(iter(self.names)).dtype
        for name, parameter in self.parameters.items():
            if parameter.dtype != first:
                raise InvalidInputError(
                    f"model.{name}", f"expected {first} as in those before, got {parameter.dtype}"
                )
        check_slices(program, self.world.size, sum(parameter.numel() for parameter in self.names))

    def update(self) -> None:
        """Update this rank's slice, and leave the pulls of others to the next forward pass."""
        first = [ticket for ticket in self._tickets if ticket.direction != "pull"]
        super().update()
        for ticket in first:
            self.channel.wait(ticket)

    def _pack(self, flat: Tensor, rank: int, gradients: Mapping[nn.Parameter, Tensor]) -> Tensor:
        """Copy a rank's slice of the local gradient, divided by the number of ranks."""
        for elements, place in self._placed[rank]:
            gradient = elements.of(gradients[elements.parameter].detach())
            torch.mul(gradient, 1 / self.world.size, out=flat[place : place + len(elements)])
        return flat

    def _add(
        self,
        turn: int,
        asked: int,
        asking: Sequence[int],
        gradients: Mapping[nn.Parameter, Tensor],
    ) -> None:
        """Send other ranks their slices of the gradient; add the received one to this rank's."""
        if turn == 0:
            self._pack(self._mean, self.world.rank, gradients)
        rooms = zip(asking, self._rooms[1:], strict=False)
        sent = {
            peer: self._pack(room[: self._sizes[peer]], peer, gradients) for peer, room in rooms
        }
        received = self._rooms[0, : len(self._mean)]
        self._exchange(asked, received, sent)
        if asked != self.world.rank:  # added in the order of turns: the same bits in every run
            self._mean += received

    def _spread(self, turn: int, asked: int, asking: Sequence[int], _: object) -> None:
        """Send other ranks this rank's slice of the weights; put the received one in its place."""
        own = self._rooms[1, : len(self._mean)]
        if turn == 0:  # the pushes are over; later turns only read row 1
            for elements, place in self._placed[self.world.rank]:
                own[place : place + len(elements)] = elements.of(self.flats[elements.parameter])
        received = self._rooms[0, : self._sizes[asked]]
        self._exchange(asked, received, dict.fromkeys(asking, own))
        if asked != self.world.rank:
            for elements, place in self._placed[asked]:
                values = elements.of(self.flats[elements.parameter])
                values.copy_(received[place : place + len(elements)])

    def _exchange(self, asked: int, received: Tensor, sent: Mapping[int, Tensor]) -> None:
        """Receive from one rank and send to others, but nothing that is empty or this rank's."""
        wanted = {asked: received} if asked != self.world.rank and received.numel() else {}
        given = {rank: part for rank, part in sent.items() if part.numel()}
        exchange(self.group, wanted, given)()


def check_slices(program: SliceProgram, ranks: int, elements: int) -> None:
    """Check that the slices cover a vector of `elements`, and that each rank pulls them all.

    The first slice or order that does not fit raises an `InvalidPlanError`.
    """
    if len(program.slices) != ranks:
        raise InvalidPlanError(
            "slices", f"planned for {len(program.slices)} ranks, the job has {ranks}"
        )
    check_pulls(elements, program.slices, program.pull_order, spread=False)


def _placed(
    parameters: Iterable[nn.Parameter], start: int, stop: int
) -> list[tuple[Elements, int]]:
    """Return the elements of parameters in a slice of their vector, and their places in it."""
    placed, begin = [], 0
    for parameter in parameters:
        first, last = max(begin, start), min(begin + parameter.numel(), stop)
        if first < last:
            placed.append((Elements(parameter, first - begin, last - begin), first - start))
        begin += parameter.numel()
    return placed
