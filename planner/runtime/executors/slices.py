"""Executor of BigDL's synchronisation: each rank sums, updates and hands out one slice, in turns.

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
from itertools import accumulate
from typing import NamedTuple

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
        self._slices = program.slices
        spans = _spans(self.names)
        self._placed = [_overlaps(spans, *bounds) for bounds in program.slices]
        own = self._placed[world.rank]
        start, stop = program.slices[world.rank]
        self._mean = torch.zeros(stop - start, dtype=next(iter(self.names)).dtype)
        self._rooms: list[Tensor] = []
        pushes, pulls = [], []
        for turn, asked in enumerate(program.pull_order[world.rank]):
            asking = [
                peer
                for peer, theirs in enumerate(program.pull_order)
                if theirs[turn] == world.rank != peer
            ]
            everything, brought = tuple(self.names), range(len(own)) if turn == 0 else ()
            work = partial(self._add, turn, asked, asking)
            pushes.append(Sent("push", everything, work, tuple(brought)))
            parameters = tuple(placed.elements.parameter for placed in self._placed[asked])
            pulls.append(Sent("pull", parameters, partial(self._spread, turn, asked, asking)))
        slices = [placed.elements for placed in own]
        self.begin([*pushes, *pulls], slices, [placed.of(self._mean) for placed in own])

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

    def _pack(self, flat: Tensor, rank: int, gradients: Mapping[nn.Parameter, Tensor]) -> None:
        """Copy a rank's slice of the local gradient, divided by the number of ranks."""
        for placed in self._placed[rank]:
            gradient = placed.elements.of(gradients[placed.elements.parameter].detach())
            torch.mul(gradient, 1 / self.world.size, out=placed.of(flat))

    def _room(self, number: int, rank: int) -> Tensor:
        """Return a buffer for a rank's slice, the same in each turn."""
        while len(self._rooms) <= number:
            most = max(stop - start for start, stop in self._slices)
            self._rooms.append(torch.zeros(most, dtype=self._mean.dtype))
        start, stop = self._slices[rank]
        return self._rooms[number][: stop - start]

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
        sent = {}
        for number, peer in enumerate(asking, 1):
            sent[peer] = self._room(number, peer)
            self._pack(sent[peer], peer, gradients)
        received = self._room(0, self.world.rank)
        self._exchange(turn, asked, received, sent)
        if asked != self.world.rank:  # added in the order of turns: the same bits in every run
            self._mean += received

    def _spread(self, turn: int, asked: int, asking: Sequence[int], _: object) -> None:
        """Send other ranks this rank's slice of the weights; put the received one in its place."""
        own = self._room(1, self.world.rank)
        if turn == 0:  # the pushes are over; later turns only read buffer 1
            for placed in self._placed[self.world.rank]:
                placed.of(own).copy_(placed.elements.of(self.flats[placed.elements.parameter]))
        received = self._room(0, asked)
        self._exchange(turn + self.world.size, asked, received, dict.fromkeys(asking, own))
        if asked != self.world.rank:
            for placed in self._placed[asked]:
                values = self.flats[placed.elements.parameter]
                placed.elements.of(values).copy_(placed.of(received))

    def _exchange(self, tag: int, asked: int, received: Tensor, sent: Mapping[int, Tensor]) -> None:
        exchange(self.group, self._others({asked: received}), self._others(sent), tag)()

    def _others(self, parts: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Return the non-empty parts of other ranks."""
        own = self.world.rank
        return {rank: part for rank, part in parts.items() if rank != own and part.numel()}


class _Placed(NamedTuple):
    """Elements of a parameter, and their offset in a slice of the vector."""

    elements: Elements
    place: int

    def of(self, flat: Tensor) -> Tensor:
        """Return the place of the elements in a slice."""
        return flat[self.place : self.place + len(self.elements)]


def _overlaps(
    spans: Mapping[nn.Parameter, tuple[int, int]], start: int, stop: int
) -> list[_Placed]:
    """Return the elements of parameters in a slice of the vector."""
    return [
        _Placed(
            Elements(parameter, max(begin, start) - begin, min(end, stop) - begin),
            max(begin - start, 0),
        )
        for parameter, (begin, end) in spans.items()
        if max(begin, start) < min(end, stop)
    ]


def _spans(parameters: Iterable[nn.Parameter]) -> dict[nn.Parameter, tuple[int, int]]:
    """Return each parameter's range of elements in the vector."""
    several = tuple(parameters)
    ends = accumulate(parameter.numel() for parameter in several)
    return {
        parameter: (end - parameter.numel(), end)
        for parameter, end in zip(several, ends, strict=True)
    }


def check_slices(program: SliceProgram, ranks: int, elements: int) -> None:
    """Check that the slices cover a vector of `elements`, and that each rank pulls them all.

    The first slice or order that does not fit raises an `InvalidPlanError`.
    """
    if len(program.slices) != ranks:
        raise InvalidPlanError(
            "slices", f"planned for {len(program.slices)} ranks, the job has {ranks}"
        )
    check_pulls(elements, program.slices, program.pull_order, spread=False)
