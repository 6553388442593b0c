"""Executor of all-reduce plans: gradients in planned batches, finished in the next forward pass.

Method: A batch leaves as one message once its last gradient is complete. `step` returns at once.
The next forward pass waits for a parameter where it reads it, and updates all parameters that have
arrived.
Guarantee: After `finish` the weights are those of plain data-parallel training. Missing, repeated
or changed gradients stop the step. Details: docs/runtime.md.
Complexity: One copy of each gradient; O(parameters + batches) per step.
Source: Hashemi et al., "Caramel", §4 (batching, scheduling into the forward pass, depth).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import nn
from torch.optim import Optimizer

from planner.families.collectives.recipes import Recipe
from planner.programs import GradientProgram
from planner.runtime.collectives.ring import AllReduce, Ring
from planner.runtime.executors.base import Executor
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.messages import means_of, messages_of, sent
from planner.runtime.model.parameter_guard import uncompiled
from planner.runtime.model.parameters import SomeParameters, check_cover
from planner.runtime.world.world import World

_WORTH = 2**18
"""Gradient bytes (256 KiB) whose update takes longer than the call of the optimiser."""


class GradientExecutor(Executor):
    """Executes a `GradientProgram`.

    `interpreters` sum up the batches that name a program; `all_reduce`, by default gloo's ring,
    sums up all others.
    """

    def __init__(
        self,
        model: nn.Module,
        program: GradientProgram,
        optimizer: Optimizer,
        world: World,
        all_reduce: AllReduce | None = None,
        interpreters: Mapping[Recipe | None, AllReduce] = MappingProxyType({}),
    ) -> None:
        options = all_reduce.name if all_reduce else ""
        super().__init__(model, program, optimizer, world, options)
        self._barrier = program.barrier
        self._all_reduces = [
            interpreters.get(batch.collective) or all_reduce or Ring(self.group)
            for batch in program.batches
        ]
        self._messages = messages_of(program.batches, self.parameters, world.size)
        carried = [message.parameters for message in self._messages]
        self.follow(carried, carried, "call synchronise() before changing gradients")
        self._means = means_of(self._messages, self.names)
        self._some = SomeParameters(optimizer, self.numbered)
        self._synchronised = False
        self._step = -1
        self._open()

    def check(self, program: GradientProgram) -> None:
        """Check that the plan carries every gradient once."""
        check_cover(program.batches, self.parameters, "groups")

    def update(self) -> None:
        """Leave the updates to the next forward pass, or finish now if the plan has a barrier.

        The first step also finishes: optimisers and schedulers then check the order of their calls.
        """
        if self._synchronised:
            self._synchronised = False
            with self.optimising():
                self.optimizer.step()
            self.forget_gradients()
            self._open()
            return
        self.finish()
        self.hand_over()
        self._some.remember()
        if self._barrier or self.steps == 0:
            self.finish()

    @uncompiled
    def synchronise(self) -> None:
        """Wait for all gradients and put their means into ``grad``."""
        if self._synchronised:
            return
        self.finish()
        self.check_gradients()
        for ticket in self.awaited:
            self.channel.wait(ticket)
        for parameter, mean in zip(self.numbered, self._means, strict=True):
            parameter.grad = mean()
        self._synchronised = True

    def next_wanted(self, needed: int | None) -> Ticket:
        """Return the needed batch, or an earlier one if enough bytes for an update come by then."""
        left, size = self.awaited[self.arrived :], 0
        for wanted in [ticket for ticket in left if ticket.begun_ns] or left[:1]:
            size += self._messages[wanted.batch].size
            if size >= _WORTH or wanted.batch == needed:
                break
        return wanted

    def complete(self, numbers: Sequence[int], batch: int) -> None:
        """Update the parameters that have arrived, with the settings of their own step."""
        arrived = [self.numbered[number] for number in numbers]
        with (
            self.trace.span("update", self._step, batch),
            # The forward pass's inference mode and autocast must not affect the optimiser.
            torch.inference_mode(mode=False),
            torch.autocast("cpu", enabled=False),
        ):
            for number, parameter in zip(numbers, arrived, strict=True):
                parameter.grad = self._means[number]()
            try:
                with self.optimising():
                    changed = self._some.step(numbers)
            finally:
                for parameter in arrived:
                    parameter.grad = None
        if changed:
            self.stop(
                f"{type(self.optimizer).__name__} counts in its groups ({changed}), and is called "
                "several times a step: such optimisers do not go with late updates"
            )
        if not self.gate.pending:
            self._open()

    def _open(self) -> None:
        """Submit the transfers of the next step."""
        self._step += 1
        taken, rows = self.begin_step(), zip(self._messages, self._all_reduces, strict=True)
        self.sending = self.awaited = [
            sent(message, all_reduce, taken, self._step, number, ready=not message.parameters)
            for number, (message, all_reduce) in enumerate(rows)
        ]
        self.arrived = len(self.awaited)  # none is waited for before the step's end
        self.channel.submit(self.awaited)
