"""What is on its way between the graphs of a compiled model, and the updates of its parameters.

Problem. Backward graphs begin transfers, and the next forward graphs wait for them; in between the
training loop ends its step, with the settings that the optimiser has then.

Method. A backward graph leaves what arrives here, by batch. `step` keeps the optimiser's settings;
a forward graph asks for batches where their parameters are first read, which waits for them and
lets the optimiser update what is complete. With a barrier all of it happens in `step`.

Guarantee. Each batch is sent once a step, in the plan's order, or the step ends with an error on
every rank. After `finish` weights are those of plain data-parallel training.

Complexity. O(batches + parameters) a step beside the optimiser's work, which is called once for
each place where a forward graph waits.

Source. As `planner.runtime.executors.gradients`, whose hooks compiled code does not call.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.errors import InvalidInputError, PlannerError
from planner.profiling.compiled.naming import breaks
from planner.programs import GradientProgram, digest
from planner.runtime.compiled.transfers import layout_of, means_in
from planner.runtime.executors.alike import agree, spread
from planner.runtime.model.checks import check_model, check_optimizer
from planner.runtime.model.compiled import uncompiled
from planner.runtime.model.parameters import check_cover, trainable
from planner.runtime.optimisers.some_parameters import SomeParameters
from planner.runtime.world.world import World

__all__ = ["Steps"]


class Steps:
    """The steps of a model whose graphs communicate.

    Parameters
    ----------
    model : Module
        Its parameters and buffers become those of rank 0.
    program : GradientProgram
        What the plan says.
    optimizer : Optimizer
        Of the model's parameters.
    world : World
        The job.
    options : str
        What else the ranks have to agree on.

    Raises
    ------
    InvalidInputError
        If the model, the optimiser and the plan do not fit together.
    DisagreementError
        If they are not the same on all ranks.
    """

    def __init__(
        self,
        model: nn.Module,
        program: GradientProgram,
        optimizer: Optimizer,
        world: World,
        options: str,
    ) -> None:
        self.world = world
        self.model = model
        self.optimizer = optimizer
        self.barrier = program.barrier
        self.complete = 0
        """Steps that have ended, but for what is still on its way."""
        with world.refusing():
            check_model(model)
            self.parameters: Mapping[str, nn.Parameter] = trainable(model)
            self.names = {parameter: name for name, parameter in self.parameters.items()}
            check_optimizer(optimizer, self.names)
            if not world.attached.isdisjoint(map(id, self.names)):
                raise InvalidInputError("model", "another executor has it: close that one first")
            agree(world, digest(type(self).__name__, program, options), self.parameters, optimizer)
            check_cover(program.batches, self.parameters, "groups")
            self.layouts = [layout_of(batch, self.parameters) for batch in program.batches]
        self.group = world.new_group(range(world.size))
        world.attached.update(map(id, self.names))
        spread(model, world, self.group)
        self.sending = True
        self._numbers = {name: number for number, name in enumerate(self.parameters)}
        self._listed = list(self.parameters.values())
        self.batches_of: dict[str, tuple[int, ...]] = dict.fromkeys(self.parameters, ())
        for batch, layout in enumerate(self.layouts):
            for name in dict.fromkeys(name for pieces in layout.pieces for name, _ in pieces):
                self.batches_of[name] += (batch,)
        self.carried = [
            tuple(name for name, batches in self.batches_of.items() if batch in batches)
            for batch in range(len(self.layouts))
        ]
        self._beside: dict[str, Tensor] = {}  # gradients that another graph has to send
        self._some = SomeParameters(optimizer, self._listed)
        self._arriving: dict[int, Sequence[Tensor]] = {}  # by batch, in transfer order
        self._pieces: dict[str, list[tuple[int, Tensor]]] = {}
        self._pending: set[str] = set()
        self._synchronised = False
        self._own_step = False
        self._closed = False
        world.watch.step = 0
        self._handles = [
            model.register_state_dict_pre_hook(lambda *_: self.finish()),
            optimizer.register_step_pre_hook(self._stepping),
            optimizer.register_state_dict_pre_hook(lambda _: self.finish()),
            optimizer.register_load_state_dict_pre_hook(lambda *_: self.finish()),
        ]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward passes add to the gradients without sending them, all but the last one."""
        self.sending, before = False, self.sending
        try:
            yield
        finally:
            self.sending = before

    def begin(self, batches: Sequence[int]) -> None:
        """Begin a backward graph that sends these batches.

        Raises
        ------
        CommunicationError
            If this rank or another one cannot go on.
        """
        self.check()
        self.world.watch.check()
        if self._pending:  # parameters that no forward graph read
            self.finish()
        expected = len(self._arriving)
        if not self._synchronised and list(batches) == list(
            range(expected, expected + len(batches))
        ):
            return
        if batches and (batches[0] in self._arriving or self._synchronised):
            self.stop(
                "a second backward pass in one step: step() ends each, but for those inside "
                "no_sync()",
                batches[0],
            )
        late = next(batch for place, batch in enumerate(batches, expected) if batch != place)
        reasons = breaks()
        why = f" (it is cut by: {reasons[0]})" if reasons else ""
        self.stop(
            f"batch {expected} was to leave before batch {late}: the graphs of this model, "
            f"of which the last one goes back first, cannot keep to the plan's order{why}",
            late,
        )

    def before(self, name: str) -> Tensor | None:
        """Take away what there is of a parameter's gradient before a graph adds to it."""
        parameter, beside = self.parameters[name], self._beside.pop(name, None)
        kept, parameter.grad = parameter.grad, None
        return kept if beside is None else beside if kept is None else kept + beside

    def leave(self, name: str, gradient: Tensor) -> None:
        """Leave a gradient to the graph that sends it."""
        self._beside[name] = gradient

    def take(self, batch: int, arriving: Sequence[Tensor]) -> None:
        """Note what a backward graph leaves of a batch that it has sent."""
        self._arriving[batch] = arriving

    @uncompiled
    def step(self) -> None:
        """End a training step, in place of the optimiser's `step`; see `PlannedBackend.step`."""
        self.check()
        if not self._synchronised and len(self._arriving) < len(self.layouts):
            batch = len(self._arriving)
            name = self.layouts[batch].pieces[0][0][0]
            self.stop(
                f"{name} is in no compiled graph that ran (compile the model with this backend, "
                "and let its loss depend on all parameters), so its batch cannot leave",
                batch,
            )
        if not self._synchronised:
            self._some.remember()
            self._pending = set(self.parameters)
            if self.barrier or self.complete == 0:  # as schedulers look for the order at first
                self.finish()
        else:
            self._synchronised = False
            self._arriving.clear()
            with self._optimising():
                self.optimizer.step()
            self._forget()
        self.complete += 1
        self.world.watch.step = self.complete

    @uncompiled
    def synchronise(self) -> None:
        """Wait for all gradients and put their means into ``grad``; the next `step` updates."""
        if self._synchronised or self._pending:
            return
        for batch in list(self._arriving):
            self._wait(batch)
        for name, parameter in self.parameters.items():
            parameter.grad = self._mean(name)
        self._synchronised = True

    @uncompiled
    def finish(self) -> None:
        """Wait for all that is on its way, and update what it is for."""
        if self._pending:
            self.finish_batches(list(self._arriving))

    @uncompiled
    def finish_batches(self, batches: Iterable[int]) -> None:
        """Wait for batches, and update the parameters that are complete then."""
        if not self._pending:
            return
        self.world.watch.check()
        done: dict[str, None] = {}
        for batch in batches:
            if batch in self._arriving:
                done.update(dict.fromkeys(self._wait(batch)))
        complete = [
            name for name in done if not any(b in self._arriving for b in self.batches_of[name])
        ]
        if complete:
            self._update(complete)

    def close(self) -> None:
        """Finish, and leave the model as a plain one."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.world.watch.error is None:
                self.finish()
        finally:
            for handle in self._handles:
                handle.remove()
            self.world.attached.difference_update(map(id, self.names))
            if self.world.watch.error is None:
                torch.distributed.destroy_process_group(self.group)

    def check(self) -> None:
        """Check that this goes on."""
        if self._closed:
            raise PlannerError("this backend was closed: compile the model anew")

    def stop(self, reason: str, batch: int | None = None) -> NoReturn:
        """Tell all ranks that this one cannot go on.

        Raises
        ------
        CommunicationError
            Always.
        """
        raise self.world.watch.failed(reason, step=self.complete, batch=batch, at_fault=True)

    def _wait(self, batch: int) -> list[str]:
        """Wait for a batch; return the parameters that it carries some of."""
        arriving = self._arriving.pop(batch)
        wait: Any = torch.ops._c10d_functional.wait_tensor
        with self.world.transferring(self.complete, batch):
            arrived = [wait(tensor) for tensor in arriving]
        names = []
        for name, elements, part in means_in(self.layouts[batch], arrived):
            self._pieces.setdefault(name, []).append((elements.start, part))
            names.append(name)
        return names

    def _mean(self, name: str) -> Tensor:
        parts = sorted(self._pieces.pop(name), key=lambda part: part[0])
        tensors = [part for _, part in parts]
        whole = tensors[0] if len(tensors) == 1 else torch.cat([t.reshape(-1) for t in tensors])
        return whole.view(self.parameters[name].shape)

    def _update(self, names: Sequence[str]) -> None:
        """Let the optimiser update some parameters, with the settings of the step they are of."""
        self._pending.difference_update(names)
        # What surrounds the forward pass does not concern the optimiser.
        with (
            torch.inference_mode(mode=False),
            torch.autocast("cpu", enabled=False),
            self._optimising(),
        ):
            for name in names:
                self.parameters[name].grad = self._mean(name)
            try:
                changed = self._some.step(map(self._numbers.__getitem__, names))
            finally:
                for name in names:
                    self.parameters[name].grad = None
        if changed:
            self.stop(
                f"{type(self.optimizer).__name__} counts in its groups ({changed}), and is called "
                "several times a step: such optimisers do not go with late updates"
            )

    def _forget(self) -> None:
        for parameter in self._listed:
            parameter.grad = None

    @contextmanager
    def _optimising(self) -> Iterator[None]:
        self._own_step = True
        try:
            yield
        finally:
            self._own_step = False

    def _stepping(self, *_: object) -> None:
        if not self._own_step:
            self.stop("the optimiser's step was called: the backend's takes its place")
