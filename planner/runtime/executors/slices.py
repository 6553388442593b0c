"""Lets each rank sum up one slice of the gradient, update it, and hand it out, turn by turn.

Problem. Execute BigDL's synchronisation: all gradients, one after the other, form one vector; each
rank owns a slice of it, pulls that slice from every other rank in a planned order, updates the
weights in it, and then pulls the other slices of the weights in the same order.

Method. The vector is only thought of: gradients and weights stay where they are. In each turn every
rank receives from the one it asks, and sends to those that ask it, whom it knows from the orders of
all ranks, slices of its gradients divided by the number of ranks. What was pulled is added to this
rank's own slice in the order of the turns. The weights' turns write into the parameters, and run
while the next forward pass begins: it waits for the slices of each parameter where it reads it.

Guarantee. A turn's transfers match each other, so no order can lead to a deadlock. After `finish`,
weights are those of plain data-parallel training; bit by bit where the order of sums is the same
(but for what `optimisers.sliced` says of rounding).
A gradient that is missing, that comes twice, or that is changed after the backward pass ends the
step with an error.

Complexity. Each rank receives (N-1)/N of the gradient and as much of the weights, in N - 1 turns
each. Beside the parameters and their gradients, a rank keeps 1/N of the optimiser's state, the mean
of its slice, and room for a slice to receive and one to send for each rank that asks it at once:
one where the orders are rotated.

Source. Venkataraman, Ding and Ermolin, "Accelerating Deep Learning Training with BigDL and Drizzle
on Apache Spark", section "Communications in BigDL".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.bigdl import check_pulls
from planner.errors import InvalidInputError, InvalidPlanError
from planner.programs import SliceProgram
from planner.runtime.collectives.exchange import exchange
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.sliced import SlicedExecutor
from planner.runtime.model.parameters import Elements
from planner.runtime.optimisers.sliced import check_elementwise
from planner.runtime.world.world import World

__all__ = ["SliceExecutor", "check_slices"]


class SliceExecutor(SlicedExecutor):
    """Executes a `SliceProgram`.

    What is written in `trace` as a batch is a turn, "push" of gradients and "pull" of weights.

    Parameters
    ----------
    model : Module
        See `Executor`; its trainable parameters are of one type of numbers.
    program, world
        See `Executor`.
    optimizer : Optimizer
        One of torch's that update each element by itself, before its first step. Until `close`, its
        groups hold this rank's part of the parameters.
    """

    def __init__(
        self, model: nn.Module, program: SliceProgram, optimizer: Optimizer, world: World
    ) -> None:
        super().__init__(model, program, optimizer, world, "")
        self._program = program
        self._spans = _spans(self.parameters.values())
        start, stop = program.slices[world.rank]
        self._placed = [self._overlaps(*bounds) for bounds in program.slices]
        self._mean = torch.zeros(stop - start, dtype=next(iter(self.names)).dtype)
        self._rooms: list[Tensor] = []
        own = self._placed[world.rank]
        self._means = {number: placed.of(self._mean) for number, placed in enumerate(own)}
        self.begin([self.names], [placed.elements for placed in own])
        self._turns_of = {parameter: self._turns(*span) for parameter, span in self._spans.items()}

    def check(self, program: SliceProgram) -> None:
        """Check that the plan is about this model and this number of ranks."""
        check_elementwise(self.optimizer)
        first = next(iter(self.names)).dtype
        for name, parameter in self.parameters.items():
            if parameter.dtype != first:
                raise InvalidInputError(
                    f"model.{name}", f"expected {first} as in those before, got {parameter.dtype}"
                )
        check_slices(program, self.world.size, sum(parameter.numel() for parameter in self.names))

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        """Note it; the gradient leaves as a whole."""
        self.gradients.take(parameter)

    def update(self) -> None:
        """Pull this rank's slice of the gradient, update it, and ask for the other slices."""
        self.gradients.check()
        self._pack(self._mean, self.world.rank)
        for ticket in self._submit("push", self._add):
            self.channel.wait(ticket)
        self.remember()
        with self.trace.span("update", self.steps):
            self.sliced.step(self._means)
        self.gradients.begin()
        self.pulling = self._submit("pull", self._spread)

    def finish_one(self, parameter: nn.Parameter) -> None:
        """Put a parameter in place once all slices that it reaches into have arrived."""
        turns = self._turns_of[parameter]
        for turn in turns:
            self.channel.wait(self.pulling[turn])
        self.put_in_place(parameter, turns[-1] if turns else 0)

    def _turns(self, begin: int, end: int) -> tuple[int, ...]:
        """Return the turns in which this rank pulls some of the elements begin … end-1."""
        order = self._program.pull_order[self.world.rank]
        bounds = [self._program.slices[owner] for owner in order]
        return tuple(
            turn
            for turn, (start, stop) in enumerate(bounds)
            if order[turn] != self.world.rank and max(begin, start) < min(end, stop)
        )

    def _overlaps(self, start: int, stop: int) -> list["_Placed"]:
        """Return which elements of which parameters a slice of the vector has."""
        return [
            _Placed(
                Elements(parameter, max(begin, start) - begin, min(end, stop) - begin),
                max(begin - start, 0),
            )
            for parameter, (begin, end) in self._spans.items()
            if max(begin, start) < min(end, stop)
        ]

    def _pack(self, flat: Tensor, rank: int) -> None:
        """Copy a rank's slice of this rank's gradient, divided by the number of ranks."""
        for placed in self._placed[rank]:
            taken = self.gradients.taken[self.gradients.index[placed.elements.parameter]]
            assert taken is not None
            gradient = placed.elements.of(taken[0].detach())
            torch.mul(gradient, 1 / self.world.size, out=placed.of(flat))

    def _room(self, number: int, rank: int) -> Tensor:
        """Return room for a rank's slice, the same in each turn."""
        while len(self._rooms) <= number:
            most = max(stop - start for start, stop in self._program.slices)
            self._rooms.append(torch.zeros(most, dtype=self._mean.dtype))
        start, stop = self._program.slices[rank]
        return self._rooms[number][: stop - start]

    def _add(self, turn: int, asked: int, asking: Sequence[int]) -> None:
        """Send others their slices of the gradient; add to this rank's what one of them sends."""
        sent = {}
        for number, peer in enumerate(asking, 1):
            sent[peer] = self._room(number, peer)
            self._pack(sent[peer], peer)
        received = self._room(0, self.world.rank)
        self._exchange(turn, asked, received, sent)
        if asked != self.world.rank:  # turn by turn, so sums are the same bits in every run
            self._mean += received

    def _spread(self, turn: int, asked: int, asking: Sequence[int]) -> None:
        """Send others this rank's slice of the weights; write that of one of them in its place."""
        own = self._room(1, self.world.rank)
        if turn == 0:  # pushes are over: room 1 is written here, and only read by later turns
            for placed in self._placed[self.world.rank]:
                placed.of(own).copy_(placed.elements.of(self.flats[placed.elements.parameter]))
        received = self._room(0, asked)
        self._exchange(turn + self.world.size, asked, received, dict.fromkeys(asking, own))
        if asked != self.world.rank:
            for placed in self._placed[asked]:
                values = self.flats[placed.elements.parameter]
                placed.elements.of(values).copy_(placed.of(received))

    def _submit(
        self, direction: str, turn_of: Callable[[int, int, Sequence[int]], None]
    ) -> list[Ticket]:
        """Ask for the turns of one phase, in each of which this rank asks one, and some ask it."""
        rank, order = self.world.rank, self._program.pull_order
        tickets = []
        for turn, asked in enumerate(order[rank]):
            asking = [peer for peer, theirs in enumerate(order) if theirs[turn] == rank != peer]
            work = partial(turn_of, turn, asked, asking)
            tickets.append(Ticket(work, self.steps, turn, direction, ready=True))
        self.channel.submit(tickets)
        return tickets

    def _exchange(self, tag: int, asked: int, received: Tensor, sent: Mapping[int, Tensor]) -> None:
        """Receive from the rank that is asked, and send to those that ask this one."""
        exchange(self.group, self._others({asked: received}), self._others(sent), tag)()

    def _others(self, parts: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Return what is not this rank's own, and not empty."""
        own = self.world.rank
        return {rank: part for rank, part in parts.items() if rank != own and part.numel()}


class _Placed(NamedTuple):
    """Elements of a parameter, and where they begin in a slice of the vector."""

    elements: Elements
    place: int

    def of(self, flat: Tensor) -> Tensor:
        """Return where they lie in that slice."""
        return flat[self.place : self.place + len(self.elements)]


def _spans(parameters: Iterable[nn.Parameter]) -> dict[nn.Parameter, tuple[int, int]]:
    """Return where each parameter's elements lie in the vector."""
    several = tuple(parameters)
    ends = accumulate(parameter.numel() for parameter in several)
    return {
        parameter: (end - parameter.numel(), end)
        for parameter, end in zip(several, ends, strict=True)
    }


def check_slices(program: SliceProgram, ranks: int, elements: int) -> None:
    """Check that slices make up a vector of some elements, and that each rank pulls them all.

    Raises
    ------
    InvalidPlanError
        With the first slice or order that does not fit.
    """
    if len(program.slices) != ranks:
        raise InvalidPlanError(
            "slices", f"planned for {len(program.slices)} ranks, the job has {ranks}"
        )
    check_pulls(elements, program.slices, program.pull_order, spread=False)
