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
from planner.runtime.collectives.ring import AllReduce, QueuedRing, Ring
from planner.runtime.executors.base import Executor
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.messages import Gradients, Message, means_of, sent, version
from planner.runtime.model.gate import uncompiled
from planner.runtime.model.parameters import SomeParameters, check_cover
from planner.runtime.world.world import World

_WORTH = 2**18
"""Gradient bytes (256 KiB) whose update takes longer than the call of the optimiser."""


class GradientExecutor(Executor):
    """Executes a `GradientProgram`.

    `interpreters` sum up the batches that name their programs, `all_reduce` or else gloo's ring all
    others.
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
        self._line = QueuedRing(world.new_line())
        self._barrier = program.barrier
        self._all_reduces = [
            interpreters.get(batch.collective)
            or all_reduce
            or (self._line if batch.depth == 1 else Ring(self.group))
            for batch in program.batches
        ]
        self._messages = [Message(batch, self.parameters, world.size) for batch in program.batches]
        self._gradients = Gradients(
            [message.parameters for message in self._messages],
            self.names,
            self.stop,
            "call synchronise() before changing gradients",
        )
        # From here on parameters are identified by number.
        self._means = means_of(self._messages, self.names)
        self._carried: list[list[int]] = [[] for _ in self._messages]
        for number, batches in enumerate(self._gradients.batches_of):
            for batch in batches:
                self._carried[batch].append(number)
        self._arrived = 0  # handled batches of the previous step, in the order they began
        self._missing: list[int] = []  # number of outstanding batches by parameter
        self._some = SomeParameters(optimizer, self._gradients.parameters)
        self._tickets: list[Ticket] = []
        self._versions: list[int] = []
        self._synchronised = False
        self._step = -1
        self._open()

    def check(self, program: GradientProgram) -> None:
        """Check that the plan carries every gradient once."""
        check_cover(program.batches, self.parameters, "groups")

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        """Release the batches that this gradient completes."""
        for number in self._gradients.take(parameter):
            self.channel.release(self._tickets[number])

    def update(self) -> None:
        """Leave the updates to the next forward pass, or finish now if the plan has a barrier.

        The first step also finishes: optimisers and schedulers then check the order of their calls.
        """
        if self._synchronised:
            self._synchronised = False
            with self.optimising():
                self.optimizer.step()
            self._gradients.forget()
            self._open()
            return
        self.finish()
        self._gradients.check()
        self._gradients.forget()
        self._some.remember()
        self._versions = [version(parameter) for parameter in self._gradients.parameters]
        self.gate.pending = set(self.names)
        self._arrived = 0
        self._missing = list(map(len, self._gradients.batches_of))
        if self._barrier or self.steps == 0:
            self.finish()

    @uncompiled
    def synchronise(self) -> None:
        """Wait for all gradients and put their means into ``grad``."""
        if self._synchronised:
            return
        self.finish()
        self._gradients.check()
        for ticket in self._tickets:
            self.channel.wait(ticket)
        for parameter, mean in zip(self._gradients.parameters, self._means, strict=True):
            parameter.grad = mean()
        self._synchronised = True

    def finish_one(self, parameter: nn.Parameter) -> None:
        """Update a parameter once its gradient has arrived, and meanwhile the earlier ones."""
        batches = self._gradients.batches_of[self._gradients.index[parameter]]
        while parameter in self.gate.pending:
            self._finish_next(batches)

    def entered(self) -> None:
        """Update arrived parameters, so that the forward pass watches only those still pending."""
        if self.gate.pending:
            self._finish_arrived()

    def finish_all(self) -> None:
        """Update all pending parameters once their gradients have arrived."""
        while self.gate.pending:
            self._finish_next()

    def _finish_next(self, needed: Sequence[int] = ()) -> None:
        """Wait for the next needed batch, or for enough bytes for an update; then update."""
        left, size = self._tickets[self._arrived :], 0
        for wanted in [ticket for ticket in left if ticket.begun_ns] or left[:1]:
            size += self._messages[wanted.batch].size
            if size >= _WORTH or wanted.batch in needed:
                break
        self.channel.wait(wanted)
        self._finish_arrived()

    def _finish_arrived(self) -> None:
        """Update the parameters that have arrived completely."""
        first, numbers, batch = self._arrived, [], 0
        while self._arrived < len(self._tickets) and self._tickets[self._arrived].done:
            batch = self._arrived
            self._arrived += 1
            for number in self._carried[batch]:
                self._missing[number] -= 1
                if not self._missing[number]:
                    numbers.append(number)
        if not numbers:
            return
        arrived = [self._gradients.parameters[number] for number in numbers]
        self.gate.pending.difference_update(arrived)  # first: the gate may watch the update itself
        try:
            for number, parameter in zip(numbers, arrived, strict=True):
                if version(parameter) != self._versions[number]:
                    self.stop(
                        f"{self.names[parameter]} was changed while its update was on its way: "
                        "call finish() before",
                        batch,
                    )
            with self.trace.span("update", self._step, batch):
                self._optimise(numbers)
        except BaseException as error:  # some parameters are now a step behind, so stay pending
            while self._arrived > first:
                self._arrived -= 1
                for number in self._carried[self._arrived]:
                    self._missing[number] += 1
            self.gate.pending.update(arrived)
            self.world.report(error, self._step, batch)
            raise
        if not self.gate.pending:
            self._open()

    def _open(self) -> None:
        """Submit the transfers of the next step."""
        self._step += 1
        self._gradients.begin()
        taken, rows = self._gradients.taken, zip(self._messages, self._all_reduces, strict=True)
        self._tickets = [
            sent(message, all_reduce, taken, self._step, number, ready=not message.parameters)
            for number, (message, all_reduce) in enumerate(rows)
        ]
        self.channel.submit(self._tickets)

    def _optimise(self, numbers: Sequence[int]) -> None:
        """Update parameters with the settings of their own step."""
        arrived = [self._gradients.parameters[number] for number in numbers]
        # The forward pass's inference mode and autocast must not affect the optimiser.
        with torch.inference_mode(mode=False), torch.autocast("cpu", enabled=False):
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
