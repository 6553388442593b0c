"""The transfers of a step: what they wait for, and what waits for them.

Method: Each gradient is recorded with its version number, which every change in place increments. A
transfer leaves once all its gradients are complete. A parameter is finished once the last transfer
with a part of it has ended; transfers end in order.
Guarantee: A transfer leaves once per step. A step whose gradients are missing, come twice, or have
changed since they were sent is stopped.
Complexity: O(parameters + transfers) per step.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from torch import nn

from planner.runtime.executors.channel import Channel, Ticket
from planner.runtime.executors.messages import Taken, version
from planner.runtime.model.gate import Gate
from planner.runtime.world.world import World


class Following(ABC):
    """Follows a step's transfers; an `Executor` adds the model, the optimiser and the steps."""

    world: World
    channel: Channel
    gate: Gate
    names: Mapping[nn.Parameter, str]

    @abstractmethod
    def stop(self, reason: str, batch: int | None = None) -> NoReturn:
        """Tell all ranks that this one cannot go on; always raises a `CommunicationError`."""

    @abstractmethod
    def next_wanted(self, needed: int | None) -> Ticket:
        """Return the transfer to wait for next, the number `needed` or an earlier one."""

    @abstractmethod
    def complete(self, numbers: Sequence[int], batch: int) -> None:
        """Finish parameters, by number, whose transfers have ended, the last one with `batch`."""

    def follow(
        self,
        sending: Sequence[Iterable[nn.Parameter]],
        arriving: Sequence[Iterable[nn.Parameter]],
        instead: str,
    ) -> None:
        """Take the parameters of all transfers of a step, in order.

        Those of `sending` leave with gradients, those of `arriving` finish parameters; `instead`
        completes the message about a changed gradient.
        """
        self._instead = instead
        self.numbered = tuple(self.names)
        self._index = {parameter: number for number, parameter in enumerate(self.numbered)}
        """The number of each parameter, used as key since hashing tensors is slow."""
        self._most_missing = [0] * len(sending)
        self._sent_in: list[list[int]] = [[] for _ in self.numbered]
        for number, parameters in enumerate(sending):
            for parameter in dict.fromkeys(parameters):
                self._sent_in[self._index[parameter]].append(number)
                self._most_missing[number] += 1
        self._last = [0] * len(self.numbered)
        for number, parameters in enumerate(arriving):
            for parameter in parameters:
                self._last[self._index[parameter]] = number
        self._ending: list[list[int]] = [[] for _ in arriving]
        for place, number in enumerate(self._last):
            self._ending[number].append(place)
        self.sending: list[Ticket] = []
        """The transfers with the next step's gradients."""
        self.awaited: list[Ticket] = []
        """The transfers that finish the current step's parameters."""
        self.arrived = 0
        """How many of them have ended."""
        self._versions: list[int] = []

    def begin_step(self) -> Taken:
        """Begin a step's gradients; return them, by parameter number, as they will be recorded."""
        self.taken: Taken = [None] * len(self.numbered)
        self._missing = self._most_missing.copy()
        return self.taken

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        """Record a complete gradient; release the transfers it completes.

        No parameter is pending then. A sparse or second gradient stops the step.
        """
        number, gradient, name = self._index[parameter], parameter.grad, self.names[parameter]
        assert gradient is not None
        if gradient.is_sparse:
            self.stop(
                f"the gradient of {name} is sparse, and only dense ones are summed up",
                self._sent_in[number][0],
            )
        if self.taken[number] is not None:
            self.stop(
                f"a second gradient for {name} in one step: step() ends each backward pass, but "
                "for those inside no_sync()",
                self._sent_in[number][0],
            )
        self.taken[number] = gradient, version(gradient)
        for batch in self._sent_in[number]:
            self._missing[batch] -= 1
            if not self._missing[batch]:
                self.channel.release(self.sending[batch])

    def check_gradients(self) -> None:
        """Check that all gradients are complete, and unchanged since they were sent."""
        for parameter, taken, batches in zip(self.numbered, self.taken, self._sent_in, strict=True):
            if taken is None:
                self.stop(
                    f"{self.names[parameter]} got no gradient (does the loss depend on it?), so "
                    "its batch cannot leave",
                    batches[0],
                )
            if parameter.grad is not taken[0] or version(taken[0]) != taken[1]:
                self.stop(
                    f"the gradient of {self.names[parameter]} was changed after it was sent: "
                    f"{self._instead}",
                    batches[0],
                )

    def forget_gradients(self) -> None:
        """Set all gradients to None."""
        for parameter in self.numbered:
            parameter.grad = None

    def hand_over(self) -> None:
        """Check this step's gradients, forget them, and let all parameters be pending."""
        self.check_gradients()
        self.forget_gradients()
        self._versions = list(map(version, self.numbered))
        self.gate.pending = set(self.names)
        self.arrived = 0

    def finish_one(self, parameter: nn.Parameter) -> None:
        """Finish a pending parameter: wait for its transfers, and update it if necessary."""
        needed = self._last[self._index[parameter]]
        while parameter in self.gate.pending:
            self.channel.wait(self.next_wanted(needed))
            self.finish_arrived()

    def finish_all(self) -> None:
        """Finish all pending parameters, and serve the other ranks to the end."""
        while self.arrived < len(self.awaited):
            self.channel.wait(self.next_wanted(None))
            self.finish_arrived()

    def finish_arrived(self) -> None:
        """Finish the parameters whose last transfer has ended."""
        first, numbers = self.arrived, list[int]()
        while self.arrived < len(self.awaited) and self.awaited[self.arrived].done:
            numbers += self._ending[self.arrived]
            self.arrived += 1
        if not numbers:
            return
        batch, arrived = self.arrived - 1, [self.numbered[number] for number in numbers]
        self.gate.pending.difference_update(arrived)  # first: the gate may watch the update itself
        try:
            for number, parameter in zip(numbers, arrived, strict=True):
                if version(parameter) != self._versions[number]:
                    self.stop(
                        f"{self.names[parameter]} was changed while its update was on its "
                        "way: call finish() before",
                        batch,
                    )
            self.complete(numbers, batch)
        except BaseException as error:  # some parameters are now a step behind, so stay pending
            self.arrived = first
            self.gate.pending.update(arrived)
            self.world.report(error, self.awaited[first].step, batch)
            raise
