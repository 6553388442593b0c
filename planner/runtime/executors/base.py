"""The common part of executors of training plans.

A training step is a forward pass, a backward pass and `Executor.step` in place of the optimiser's.
Method: An executor observes the passes by hooks, and sends all batches through one channel. Each
gradient is recorded with its version number, which every change in place increments. A transfer
leaves once all its gradients are complete. A parameter is finished when the next forward pass reads
it, once the last transfer with a part of it has ended; transfers end in order.
Guarantee: A transfer leaves once per step. A step whose gradients are missing, come twice, or have
changed since they were sent is stopped.
Complexity: O(parameters + transfers) per step.
"""

import copyreg
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NoReturn, Self

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from planner.model.errors import InvalidInputError, NotApplicableError, PlannerError
from planner.programs import Program, digest
from planner.runtime.executors.channel import Channel, Ticket
from planner.runtime.executors.messages import Taken, version
from planner.runtime.executors.trace import Event, Trace
from planner.runtime.model.parameter_guard import ParameterGuard, in_backward, uncompiled
from planner.runtime.model.parameters import (
    agree,
    check_model,
    check_optimizer,
    parameters_of,
    spread,
    trainable,
)
from planner.runtime.world.world import World


class Executor(ABC):
    """Runs the communication of a model's training steps; `planner.runtime.attach` makes it.

    Parameters and buffers become those of rank 0; later each rank keeps its own buffers. From now
    on only this object calls the optimiser. All ranks must share `options`.
    """

    def __init__(
        self, model: nn.Module, program: Program, optimizer: Optimizer, world: World, options: str
    ) -> None:
        self.trace = Trace()
        """The events of this rank."""
        self.steps = 0
        """Completed steps; their last transfers and updates may be pending."""
        self.world = world
        self.model = model
        self.optimizer = optimizer
        with world.refusing():
            check_model(model)
            self.parameters: Mapping[str, nn.Parameter] = trainable(model)
            self.names = {parameter: name for name, parameter in self.parameters.items()}
            check_optimizer(optimizer, self.names)
            if not world.attached.isdisjoint(map(id, self.names)):
                raise InvalidInputError("model", "another executor has it: close that one first")
            agree(world, digest(type(self).__name__, program, options), self.parameters, optimizer)
            self.check(program)
        self.group = world.new_group()
        """All ranks, for this executor's channel alone."""
        world.attached.update(map(id, self.names))
        self._groups: list[list[int]] = parameters_of(optimizer)
        self._every = list(model.parameters())
        self._requiring = [parameter.requires_grad for parameter in self._every]
        spread(model, world, self.group)
        self.channel = Channel(world, self.trace)
        self.gate = ParameterGuard(model, self.finish_one, self.finish, self._entered, self._left)
        self._hooks = ExitStack()  # undoes what this object has done to the model
        self._hooks.callback(world.attached.difference_update, list(map(id, self.names)))
        hooks = (partial(self._accumulated, number) for number in range(len(self.names)))
        for handle in (
            *map(nn.Parameter.register_post_accumulate_grad_hook, self.names, hooks),
            optimizer.register_step_pre_hook(self._stepping),
            optimizer.register_state_dict_pre_hook(lambda _: self.finish()),
            optimizer.register_load_state_dict_pre_hook(lambda *_: self.finish()),
        ):
            self._hooks.callback(handle.remove)
        self._hooks.callback(self.gate.close)
        self.updating = False
        """Whether this executor is the one that calls the optimiser's step now."""
        self._accumulating = False
        self._forward_start = self._forward_end = self._step_start = time.monotonic_ns()
        self._seen = False
        self._closed = False
        self._closing: list[Callable[[], object]] = []
        world.watch.step = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        self.world.report(error)
        self.channel.reported |= error is not None
        self.close()

    @abstractmethod
    def check(self, program: Any) -> None:
        """Check that a plan fits the model and the job; raise an `InvalidInputError` if not."""

    @abstractmethod
    def update(self) -> None:
        """Do the work of an optimiser step, or arrange that it is done in time."""

    @abstractmethod
    def next_wanted(self, needed: int | None) -> Ticket:
        """Return the transfer to wait for next, the number `needed` or an earlier one."""

    @abstractmethod
    def complete(self, numbers: Sequence[int], batch: int) -> None:
        """Finish parameters, given by number; `batch` is the last transfer that has ended."""

    @uncompiled
    def finish(self) -> None:
        """Finish all pending parameters, and serve the other ranks to the end.

        Call this method before you read parameters outside the model's forward pass and
        `state_dict`, which finish parameters themselves. No other rank has to call it.
        """
        while self.arrived < len(self.awaited):
            self.channel.wait(self.next_wanted(None))
            self.finish_arrived()
        if not self.gate.depth and not in_backward():
            self.gate.forget()

    @uncompiled
    def step(self) -> None:
        """End a training step; call it in place of the optimiser's `step`.

        Raises
        ------
        CommunicationError
            If this rank cannot go on, or another one has stopped.
        """
        self.gate.reset()
        now = time.monotonic_ns()
        if self._closed:
            raise PlannerError("this executor was closed")
        if self._requiring != [parameter.requires_grad for parameter in self._every]:
            self.stop("the model's trainable parameters are no longer those it began with")
        if parameters_of(self.optimizer) != self._groups:
            self.stop("the optimiser's parameters are no longer those it began with")
        if self.gate.overtaken:
            self.stop(
                "a function was compiled, and may have read parameters before they were updated: "
                "compile before attach, or call finish() before the first call"
            )
        self.trace.add(Event("backward", self.steps, -1, self._forward_end, now))
        self.update()
        if self.gate.hidden:
            self.finish()
        self.gate.begin()
        self.steps += 1
        self._seen = False
        self.world.watch.step = self.steps
        now = time.monotonic_ns()
        self.trace.add(Event("step", self.steps - 1, -1, self._step_start, now))
        self._step_start = now

    def synchronise(self) -> None:
        """Wait for all gradients and put their means into ``grad``, for example to clip their norm.

        The next `step` then updates at once. Plans of `ibatch` and `bigdl` raise a
        `NotApplicableError`, because no rank has whole gradients.
        """
        raise NotApplicableError(
            "plan", "no rank has whole gradients to clip: expected a plan of caramel"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Give copies of a model whose `no_sync` is this executor's a `no_sync` without effect."""
        return copyreg.__newobj__, (type(self),), {"_accumulating": False}  # type: ignore[attr-defined]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let the backward passes inside, all of a step but the last, send no gradients yet."""
        self._accumulating, before = True, self._accumulating
        try:
            yield
        finally:
            self._accumulating = before

    def close(self) -> None:
        """Finish, and remove the hooks from the model.

        After a failure, parameters that cannot be finished stay pending: some are a step older than
        others, and reading them, as by `state_dict`, keeps raising the failure.

        Raises
        ------
        CommunicationError
            If parameters stay pending and the failure has not been raised before.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self.world.watch.error is None:
                self.finish()
            elif self.gate.pending and not self.channel.reported:
                self.channel.check()
        finally:
            if not self.gate.pending:
                self._hooks.close()
            self.channel.close()
            for last in self._closing:
                last()

    def closing(self, last: Callable[[], object]) -> None:
        """Register a function to call on close, after the last transfer and earlier ones."""
        self._closing.append(last)

    def stop(self, reason: str, batch: int | None = None) -> NoReturn:
        """Tell all ranks that this one cannot go on; always raises a `CommunicationError`."""
        self.channel.reported = True
        raise self.world.watch.failed(reason, step=self.steps, batch=batch, at_fault=True)

    @contextmanager
    def optimising(self) -> Iterator[None]:
        """Allow the optimiser's step inside; a step called elsewhere stops the job."""
        self.updating = True
        try:
            yield
        finally:
            self.updating = False

    def _stepping(self, optimizer: Optimizer, *_: Any) -> None:
        if optimizer is self.optimizer and not self.updating:  # a twin that updates slices may
            self.stop("the optimiser's step was called: the executor's takes its place")

    @uncompiled
    def _accumulated(self, number: int, parameter: nn.Parameter) -> None:  # few calls: cold caches
        if not self._seen:  # a forward pass compiled as a whole runs no hooks
            self._passed(self._step_start, time.monotonic_ns())
        if self.gate.pending or self.gate.unread:
            self._check_read(parameter)
        if self._accumulating:
            return
        gradient = parameter.grad
        assert gradient is not None
        if gradient.is_sparse or self.taken[number] is not None:
            self._refuse(number, gradient)
        self.taken[number] = gradient, version(gradient)
        for batch in self._sent_in[number]:
            self._missing[batch] -= 1
            if not self._missing[batch]:
                self.channel.check()
                self.channel.release(self.sending[batch])

    def _check_read(self, parameter: nn.Parameter) -> None:
        """Stop if a parameter was read before its update; finish those that were not read."""
        if parameter in self.gate.pending or parameter in self.gate.unread:
            self.stop(
                f"{self.names[parameter]} was read before it was updated, where it could not be "
                "noticed (outside the model's modules, or in a scripted or compiled function): "
                "call finish() before the forward pass"
            )
        if self.gate.pending and not self._accumulating:
            self.finish()

    def _entered(self) -> None:
        self.channel.check()
        outer = DistributedDataParallel._get_active_ddp_module()  # for Dynamo
        if outer is not None and any(parameter in self.names for parameter in outer.parameters()):
            self.stop(
                "DistributedDataParallel, which sends gradients too, calls the model: call it"
            )
        if not in_backward():
            self._forward_start = time.monotonic_ns()
            if self.gate.pending:  # so that the pass watches only what is still pending
                self.finish_arrived()

    def _left(self) -> None:
        if not in_backward():
            self._passed(self._forward_start, time.monotonic_ns())

    def _passed(self, start: int, end: int) -> None:
        self._seen, self._forward_end = True, end
        self.trace.add(Event("forward", self.steps, -1, start, end))

    def follow(
        self,
        sending: Sequence[Iterable[nn.Parameter]],
        arriving: Sequence[Iterable[nn.Parameter]],
        instead: str,
    ) -> None:
        """Register the parameters of all transfers of a step, in order.

        Transfers of `sending` carry gradients, transfers of `arriving` finish parameters; `instead`
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
        self.arrived = 0  # the number of `awaited` transfers that have ended
        self._versions: list[int] = []

    def begin_step(self) -> Taken:
        """Begin a step's gradients; return them, by parameter number, as they will be recorded."""
        self.taken: Taken = [None] * len(self.numbered)
        self._missing = self._most_missing.copy()
        return self.taken

    def _refuse(self, number: int, gradient: Tensor) -> NoReturn:
        """Stop for a sparse gradient, or a second one in a step."""
        name, batch = self.names[self.numbered[number]], self._sent_in[number][0]
        if gradient.is_sparse:
            self.stop(f"the gradient of {name} is sparse: expected a dense one", batch)
        self.stop(
            f"a second gradient for {name} in one step: step() ends each backward pass, but for "
            "those inside no_sync()",
            batch,
        )

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

    def finish_arrived(self) -> None:
        """Finish the parameters whose last transfer has ended."""
        first, numbers = self.arrived, list[int]()
        while self.arrived < len(self.awaited) and self.awaited[self.arrived].done:
            numbers += self._ending[self.arrived]
            self.arrived += 1
        if not numbers:
            return
        batch, arrived = self.arrived - 1, [self.numbered[number] for number in numbers]
        self.gate.pending.difference_update(arrived)  # first: the guard may observe the update
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
