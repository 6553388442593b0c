"""The common part of executors of training plans.

A training step is a forward pass, a backward pass and `Executor.step` in place of the optimiser's.
An executor observes the passes by hooks, sends all batches through one channel, and finishes each
parameter when the next forward pass reads it.
"""

import copyreg
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn, Self

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from planner.model.errors import InvalidInputError, NotApplicableError, PlannerError
from planner.programs import Program, digest
from planner.runtime.executors.channel import Channel
from planner.runtime.executors.following import Following
from planner.runtime.executors.trace import Event, Trace
from planner.runtime.model.gate import Gate, uncompiled
from planner.runtime.model.parameters import (
    as_text,
    check_model,
    check_optimizer,
    described,
    trainable,
)
from planner.runtime.world.world import World


def agree(
    world: World, plan: str, parameters: Mapping[str, nn.Parameter], optimizer: Optimizer
) -> None:
    """Compare plan, parameters and optimiser of all ranks; raise a `DisagreementError` on each.

    So any difference stops every rank before the first transfer. Reads the optimiser's state once.
    """
    packed = optimizer.state_dict()
    settings = type(optimizer).__name__, as_text(packed["param_groups"])
    world.agree("the plan", plan)
    world.agree("the model's parameters", digest(described(parameters)))
    world.agree("the optimiser and its settings", digest(settings))
    # In one order, whatever a checkpoint had.
    state = sorted(packed["state"].items(), key=lambda entry: str(entry[0]))
    world.agree("the optimiser's state", digest(as_text(state)))


def spread(model: nn.Module, world: World, group: Any) -> None:
    """Broadcast the parameters and buffers of rank 0 in one message."""
    every = {id(tensor): tensor.detach() for tensor in (*model.parameters(), *model.buffers())}
    # As bytes, since gloo does not support all types; large elements first, so all are aligned.
    tensors = sorted(every.values(), key=lambda tensor: -tensor.element_size())
    with torch.no_grad(), world.transferring():
        flat = torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors])
        group.broadcast(flat, 0).wait()
        for tensor, part in zip(
            tensors, flat.split([each.nbytes for each in tensors]), strict=True
        ):
            tensor.copy_(part.view(tensor.dtype).view_as(tensor))


class Executor(Following):
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
        self.gate = Gate(model, self.finish_one, self.finish, self._entered, self._left)
        self._hooks = ExitStack()  # undoes what this object has done to the model
        self._hooks.callback(world.attached.difference_update, list(map(id, self.names)))
        for handle in (
            *(each.register_post_accumulate_grad_hook(self._accumulated) for each in self.names),
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
        self.channel.told |= error is not None
        self.close()

    @abstractmethod
    def check(self, program: Any) -> None:
        """Check that a plan fits the model and the job; raise an `InvalidInputError` if not."""

    @abstractmethod
    def update(self) -> None:
        """Do the work of an optimiser step, or arrange that it is done in time."""

    @uncompiled
    def finish(self) -> None:
        """Finish all pending parameters.

        Call before any read of parameters outside the model's forward pass and `state_dict`, which
        finish parameters themselves. No other rank has to call it.
        """
        self.finish_all()
        if not self.gate.depth and not _in_backward():
            self.gate.unread = set()  # complete parameters may be read anywhere

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
        self._check_same()
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
        """Let copies of a model that has `no_sync` as an attribute have one without effect."""
        return copyreg.__newobj__, (type(self),), {"_accumulating": False}  # type: ignore[attr-defined]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward passes accumulate gradients without sending them, all but the last one."""
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
            elif self.gate.pending and not self.channel.told:
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
        self.channel.told = True
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

    def _check_same(self) -> None:
        """Check that the model and the optimiser still have the planned parameters."""
        if self._closed:
            raise PlannerError("this executor was closed")
        if self._requiring != [parameter.requires_grad for parameter in self._every]:
            self.stop("the model's trainable parameters are no longer those it began with")
        if parameters_of(self.optimizer) != self._groups:
            self.stop("the optimiser's parameters are no longer those it began with")

    @uncompiled
    def _accumulated(self, parameter: nn.Parameter) -> None:
        if not self._seen:  # a forward pass compiled as a whole runs no hooks
            self._passed(self._step_start, time.monotonic_ns())
        gate = self.gate
        if (gate.pending or gate.unread) and (
            parameter in gate.pending or parameter in gate.unread
        ):
            self.stop(
                f"{self.names[parameter]} was read before it was updated, where it could not be "
                "noticed (outside the model's modules, or in a scripted or compiled function): "
                "call finish() before the forward pass"
            )
        if not self._accumulating:
            self.channel.check()
            if gate.pending:  # parameters that the last forward pass did not read
                self.finish()
            self.gradient_ready(parameter)

    def _entered(self) -> None:
        self.channel.check()
        outer = DistributedDataParallel._get_active_ddp_module()  # for Dynamo
        if outer is not None and any(parameter in self.names for parameter in outer.parameters()):
            self.stop(
                "DistributedDataParallel, which sends gradients too, calls the model: call it"
            )
        if not _in_backward():
            self._forward_start = time.monotonic_ns()
            if self.gate.pending:  # so that the pass watches only what is still pending
                self.finish_arrived()

    def _left(self) -> None:
        if not _in_backward():
            self._passed(self._forward_start, time.monotonic_ns())

    def _passed(self, start: int, end: int) -> None:
        self._seen, self._forward_end = True, end
        self.trace.add(Event("forward", self.steps, -1, start, end))


def parameters_of(optimizer: Optimizer) -> list[list[int]]:
    """Return the parameters of each group, by `id`."""
    return [list(map(id, group["params"])) for group in optimizer.param_groups]


def _in_backward() -> bool:
    """Return whether a backward pass runs, which calls modules again at activation checkpoints."""
    return torch._C._current_graph_task_id() != -1  # as torch's checkpoints do
