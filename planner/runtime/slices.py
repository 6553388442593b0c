"""Lets each rank sum up one slice of the gradient, update it, and hand it out, turn by turn.

Problem. Execute BigDL's synchronisation: all gradients, one after the other, form one vector; each
rank owns a slice of it, pulls that slice from every other rank in a planned order, updates the
weights in it, and then pulls the other slices of the weights in the same order.

Method. `step` copies the gradients, divided by the number of ranks, into the vector. In each turn
every rank receives from the one it asks, and sends to those that ask it, whom it knows from the
orders of all ranks. What was pulled is added up in the order of the ranks. The weights' turns run
while the next forward pass begins: it waits for the slices of each parameter where it reads it.

Guarantee. A turn's transfers match each other, so no order can lead to a deadlock. After `finish`,
weights are those of plain data-parallel training; bit by bit where the order of sums is the same
(but for what `planner.runtime.sliced` says of rounding).
A gradient that is missing, that comes twice, or that is changed after the backward pass ends the
step with an error.

Complexity. Each rank receives (N-1)/N of the gradient and as much of the weights, in N - 1 turns
each. Messages take three times the memory of the parameters, the optimiser's state 1/N of what it
takes elsewhere.

Source. Venkataraman, Ding and Ermolin, "Accelerating Deep Learning Training with BigDL and Drizzle
on Apache Spark", section "Communications in BigDL".
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from planner.errors import InvalidInputError, InvalidPlanError
from planner.programs import SliceProgram
from planner.runtime.channel import Ticket
from planner.runtime.sliced import Slice, SlicedExecutor, check_elementwise
from planner.runtime.world import World, blaming

__all__ = ["SliceExecutor", "check_slices"]

_Parts = Callable[[int], tuple[Tensor, Tensor]]
"""For a rank: where what it sends to this one goes, and what this one sends to it."""


class SliceExecutor(SlicedExecutor):
    """Executes a `SliceProgram`.

    What is written in `trace` as a batch is a turn, "push" of gradients and "pull" of weights.

    ``executor.optimizer.state_dict()`` is the state of this rank's slice alone: a checkpoint needs
    one of every rank, and as many ranks to go on from it. `close` gives the optimiser its
    parameters back, without that state.

    Values that are written into the model's parameters between steps count, if all ranks write
    them; `finish` has to be called before.

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
        dtype = next(iter(self.names)).dtype
        start, stop = program.slices[world.rank]
        total = sum(one.numel() for one in self.names)
        self._gradient = torch.zeros(total, dtype=dtype)
        self._weights = torch.zeros(total, dtype=dtype)
        self._pulled = torch.zeros(world.size, stop - start, dtype=dtype)
        slices: dict[nn.Parameter, Slice] = {}
        self._means: dict[nn.Parameter, Tensor] = {}
        for one, (begin, end) in self._spans.items():
            self._weights[begin:end] = one.detach().reshape(-1)
            low, high = max(begin, start), min(end, stop)
            if low < high:
                stand_in = nn.Parameter(self._weights[low:high])
                slices[one] = Slice(low - begin, high - begin, stand_in)
                self._means[one] = self._pulled[0, low - start : high - start]
        self.begin([self.names], slices)
        self._turns_of = {one: self._turns(*span) for one, span in self._spans.items()}
        self._pulling: list[Ticket] = []

    def check(self, program: SliceProgram) -> None:
        """Check that the plan is about this model and this number of ranks."""
        check_elementwise(self.optimizer)
        first = next(iter(self.names)).dtype
        for name, one in self.parameters.items():
            if one.dtype != first:
                raise InvalidInputError(
                    f"model.{name}", f"expected {first} as in those before, got {one.dtype}"
                )
        check_slices(program, self.world.size, sum(one.numel() for one in self.names))

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        """Note it; the gradient leaves as a whole."""
        if self.gate.pending:  # parameters that the last forward pass did not read
            self.finish()
        self.gradients.take(parameter)

    def update(self) -> None:
        """Pull this rank's slice of the gradient, update it, and ask for the other slices."""
        self.gradients.check()
        for parameter, (begin, end) in self._spans.items():
            assert parameter.grad is not None  # as it was checked
            flat = parameter.grad.detach().reshape(-1)
            torch.mul(flat, 1 / self.world.size, out=self._gradient[begin:end])
        self.gradients.forget()
        self.gradients.begin()
        for ticket in self._submit("push", self._of_gradient):
            self.channel.wait(ticket)
        start, stop = self._program.slices[self.world.rank]
        self._pulled[self.world.rank] = self._gradient[start:stop]
        for row in self._pulled[1:]:
            self._pulled[0] += row
        self.optimise(self._means)
        self._pulling = self._submit("pull", self._of_weights)
        self.gate.pending = set(self.names)

    def finish_one(self, parameter: nn.Parameter) -> None:
        """Put a parameter in place once all slices that it reaches into have arrived."""
        turns = self._turns_of[parameter]
        for turn in turns:
            self.channel.wait(self._pulling[turn])
        begin, end = self._spans[parameter]
        values = self._weights[begin:end]
        self.put_in_place(parameter, turns[-1] if turns else 0, lambda flat: flat.copy_(values))

    def finish_all(self) -> None:
        """Put all pending parameters in place, and serve the other ranks to the end."""
        for ticket in self._pulling:
            self.channel.wait(ticket)
        for parameter in tuple(self.gate.pending):
            self.finish_one(parameter)

    def _turns(self, begin: int, end: int) -> tuple[int, ...]:
        """Return the turns in which this rank pulls some of the elements begin … end-1."""
        order = self._program.pull_order[self.world.rank]
        bounds = [self._program.slices[owner] for owner in order]
        return tuple(
            turn
            for turn, (start, stop) in enumerate(bounds)
            if order[turn] != self.world.rank and max(begin, start) < min(end, stop)
        )

    def _of_gradient(self, peer: int) -> tuple[Tensor, Tensor]:
        """Return where a rank's gradient goes, and what that rank gets of this one's."""
        start, stop = self._program.slices[peer]
        return self._pulled[peer], self._gradient[start:stop]

    def _of_weights(self, peer: int) -> tuple[Tensor, Tensor]:
        """Return where a rank's weights go, and this rank's."""
        start, stop = self._program.slices[peer]
        own_start, own_stop = self._program.slices[self.world.rank]
        return self._weights[start:stop], self._weights[own_start:own_stop]

    def _submit(self, direction: str, parts: _Parts) -> list[Ticket]:
        """Ask for the turns of one phase."""
        size = self.world.size
        tickets = []
        for turn in range(size):
            tag = turn + size * (direction == "pull")
            work = partial(self._exchange, turn, tag, parts)
            tickets.append(Ticket(work, self.steps, turn, ready=True, direction=direction))
        self.channel.submit(tickets)
        return tickets

    def _exchange(self, turn: int, tag: int, parts: _Parts) -> None:
        """Receive from the rank that is asked, and send to all that ask this one."""
        rank, order = self.world.rank, self._program.pull_order
        asked = order[rank][turn]
        asking = [other for other, theirs in enumerate(order) if theirs[turn] == rank]
        transfers: list[tuple[Callable[..., Any], int, Tensor]] = [
            (distributed.irecv, asked, parts(asked)[0]),  # before sending: else half-duplex
            *((distributed.isend, other, parts(other)[1]) for other in asking),
        ]
        begun = []
        for begin, peer, part in transfers:
            if peer != rank and part.numel():
                with blaming(peer):
                    begun.append((peer, begin(part, peer, group=self.group, tag=tag)))
        for peer, work in begun:
            with blaming(peer):
                work.wait()


def _spans(parameters: Iterable[nn.Parameter]) -> dict[nn.Parameter, tuple[int, int]]:
    """Return where each parameter's elements lie in the vector."""
    several = tuple(parameters)
    ends = accumulate(one.numel() for one in several)
    return {one: (end - one.numel(), end) for one, end in zip(several, ends, strict=True)}


def check_slices(program: SliceProgram, ranks: int, elements: int) -> None:
    """Check that slices make up a vector of some elements, and that each rank pulls them all.

    Raises
    ------
    InvalidPlanError
        With the first slice or order that does not fit.
    """
    for path, given in ("slices", program.slices), ("pull_order", program.pull_order):
        if len(given) != ranks:
            raise InvalidPlanError(path, f"planned for {len(given)} ranks, the job has {ranks}")
    reached = 0
    for rank, (start, stop) in enumerate(program.slices):
        if start != reached or stop < start:
            raise InvalidPlanError(
                f"slices[{rank}]", f"expected one that starts at {reached}, got [{start}, {stop})"
            )
        reached = stop
    if reached != elements:
        raise InvalidPlanError(
            "slices", f"planned for {reached} elements, the model has {elements} to train"
        )
    for rank, order in enumerate(program.pull_order):
        if sorted(order) != list(range(ranks)):
            raise InvalidPlanError(
                f"pull_order[{rank}]", f"expected each of {ranks} ranks once, got {order}"
            )
