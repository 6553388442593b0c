"""All-reduces gradients in planned batches, and finishes them in the next forward pass.

Problem. Execute a plan of gradient transfers (Caramel's, or any other that says which parts of
which gradients travel together in which order): send each batch when its gradients are ready and
the batch before it has ended, and let the next forward pass begin before all have ended.

Method. A hook on each parameter notes when its gradient is complete. The channel copies the ready
gradients of the next batch into one message, divided by the number of ranks, and sums up, as DDP
does. `step` returns at once; a parameter is updated when the next forward pass reads it, by the
optimiser's own `step` on just the parameters of the batches that have arrived, with the learning
rate and the other settings that held when `step` was called. (The first step finishes at once:
that is when optimisers and schedulers look whether they are used in the right order.)

Guarantee. After `finish`, weights are those of plain data-parallel training; bit by bit where the
order of sums is the same. Batches travel in the planned order on every rank. A gradient that is
missing, that comes twice, or that is changed after it was sent (other than through ``data``, which
torch does not show) ends the step with an error.

Complexity. One copy of each gradient into a message; the optimiser is called once a batch.

Source. Hashemi et al., "Caramel", §4 (batching, scheduling into the forward pass, depth).
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.programs import Batch, GradientProgram
from planner.runtime.channel import Ticket
from planner.runtime.collected import Gradients, version
from planner.runtime.collectives import AllReduce, Ring
from planner.runtime.compiled import uncompiled
from planner.runtime.executor import Executor
from planner.runtime.table import by_dtype, check_cover, span
from planner.runtime.world import World

__all__ = ["GradientExecutor"]


class GradientExecutor(Executor):
    """Executes a `GradientProgram`.

    Parameters
    ----------
    model, program, optimizer, world
        See `Executor`. Optimisers that treat all parameters as one (LBFGS) do not apply.
    all_reduce : AllReduce, optional
        How a message is summed up; by default gloo's ring.
    """

    def __init__(
        self,
        model: nn.Module,
        program: GradientProgram,
        optimizer: Optimizer,
        world: World,
        all_reduce: AllReduce | None = None,
    ) -> None:
        self._barrier = program.barrier
        super().__init__(model, program, optimizer, world, all_reduce.name if all_reduce else "")
        self._all_reduce = all_reduce or Ring(self.group)
        self._messages = [_Message(batch, self.parameters) for batch in program.batches]
        self._gradients = Gradients(
            [message.parameters for message in self._messages],
            self.names,
            self.stop,
            "call synchronise() before changing gradients",
        )
        self._batches_of = self._gradients.batches_of
        self._tickets: list[Ticket] = []
        self._settings: list[dict[str, Any]] = []
        self._versions: dict[nn.Parameter, int] = {}
        self._synchronised = False
        self._step = -1
        self._handles += [
            optimizer.register_state_dict_pre_hook(lambda _: self.finish()),
            optimizer.register_load_state_dict_pre_hook(lambda *_: self.finish()),
        ]
        self._open()

    def check(self, program: GradientProgram) -> None:
        """Check that the plan carries every gradient once."""
        check_cover(program.batches, self.parameters, "groups")

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        """Let the batches go whose gradients are now complete."""
        if self.gate.pending:  # parameters that the last forward pass did not read
            self.finish()
        for number in self._gradients.take(parameter):
            self.channel.release(self._tickets[number])

    def update(self) -> None:
        """Leave the gradients to the next forward pass; or finish, if the plan says so."""
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
        self._settings = [
            {key: _copied(value) for key, value in group.items() if key != "params"}
            for group in self.optimizer.param_groups
        ]
        self._versions = {one: version(one) for one in self._gradients.taken}
        self.gate.pending = set(self._gradients.taken)
        if self._barrier or self.steps == 0:
            self.finish()

    @uncompiled
    def synchronise(self) -> None:
        """Wait for all gradients and put their means into ``grad``, as to clip their norm.

        The next `step` then updates at once.
        """
        if self._synchronised:
            return
        self.finish()
        self._gradients.check()
        for ticket in self._tickets:
            self.channel.wait(ticket)
        for parameter in self._gradients.taken:
            parameter.grad = self._mean(parameter)
        self._synchronised = True

    def finish_one(self, parameter: nn.Parameter) -> None:
        """Update a parameter, and those that travelled with it, once they have arrived."""
        numbers = self._batches_of[parameter]
        for number in numbers:
            self.channel.wait(self._tickets[number])
        arrived = {
            one
            for number in numbers
            for one in self._messages[number].parameters
            if one in self.gate.pending
            and all(self._tickets[other].done for other in self._batches_of[one])
        }
        self.gate.pending -= arrived  # first: the gate may watch what follows
        try:
            self._check_unchanged(arrived, numbers[0])
            with self.trace.span("update", self._step, numbers[0]):
                self._optimise(arrived)
        except BaseException as error:  # some parameters are now a step older than others
            self.gate.pending |= arrived
            self.world.report(error, self._step, numbers[0])
            raise
        if not self.gate.pending:
            self._open()

    def finish_all(self) -> None:
        """Update all pending parameters once their gradients have arrived."""
        while self.gate.pending:
            self.finish_one(min(self.gate.pending, key=self._batches_of.__getitem__))

    def _check_unchanged(self, parameters: Collection[nn.Parameter], batch: int) -> None:
        for one in parameters:
            if version(one) != self._versions[one]:
                self.stop(
                    f"{self.names[one]} was changed while its update was on its way: call finish() "
                    "before",
                    batch,
                )

    def _open(self) -> None:
        """Ask for the transfers of the next step."""
        self._step += 1
        self._gradients.begin()
        self._tickets = [
            Ticket(
                self._sending(message, self._gradients.taken),
                self._step,
                number,
                ready=not message.parameters,
            )
            for number, message in enumerate(self._messages)
        ]
        for ticket in self._tickets:
            self.channel.submit(ticket)

    def _sending(
        self, message: "_Message", gradients: "Mapping[nn.Parameter, tuple[Tensor, int]]"
    ) -> Callable[[], None]:
        def send() -> None:
            message.pack(gradients, self.world.size)
            for flat in message.buffers:
                self._all_reduce(flat, message.depth)

        return send

    def _mean(self, parameter: nn.Parameter) -> Tensor:
        """Return the mean of the ranks' gradients, which has arrived."""
        parts = [
            part
            for number in self._batches_of[parameter]
            for part in self._messages[number].parts
            if part.parameter is parameter
        ]
        parts.sort(key=lambda part: part.start)
        flat = parts[0].view if len(parts) == 1 else torch.cat([part.view for part in parts])
        return flat.view_as(parameter)

    def _optimise(self, parameters: Collection[nn.Parameter]) -> None:
        """Let the optimiser update some parameters, with the settings of the step they are of."""
        groups = self.optimizer.param_groups
        kept = [dict(group) for group in groups]
        # What surrounds the forward pass does not concern the optimiser.
        with torch.inference_mode(mode=False), torch.autocast("cpu", enabled=False):
            for parameter in parameters:
                parameter.grad = self._mean(parameter)
            try:
                for group, settings in zip(groups, self._settings, strict=True):
                    group.update(settings)
                    group["params"] = [one for one in group["params"] if one in parameters]
                with self.optimising():
                    self.optimizer.step()
                changed = [
                    key
                    for group, settings in zip(groups, self._settings, strict=True)
                    for key, value in group.items()
                    if key != "params" and not (key in settings and _same(value, settings[key]))
                ]
            finally:
                for group, before in zip(groups, kept, strict=True):
                    group.update(before)
                for parameter in parameters:
                    parameter.grad = None
        if changed:
            self.stop(
                f"{type(self.optimizer).__name__} counts in its groups ({changed[0]}), and is "
                "called once a batch: such optimisers do not go with late updates"
            )


class _Part(NamedTuple):
    """Elements start … stop-1 of a parameter's gradient, and where they lie in a message."""

    parameter: nn.Parameter
    start: int
    stop: int
    view: Tensor


class _Message:
    """What one batch sends: one buffer for each type of number."""

    def __init__(self, batch: Batch, parameters: Mapping[str, nn.Parameter]) -> None:
        self.depth = batch.depth
        self.buffers: list[Tensor] = []
        self.parts: list[_Part] = []
        for dtype, pieces in by_dtype(batch.pieces, parameters).items():
            width = dtype.itemsize
            spans = [span(piece, parameters[piece.parameter]) for piece in pieces]
            flat = torch.empty(sum(stop - start for start, stop in spans) // width, dtype=dtype)
            place = 0
            for piece, (start, stop) in zip(pieces, spans, strict=True):
                first, last = start // width, stop // width
                view = flat.narrow(0, place, last - first)
                self.parts.append(_Part(parameters[piece.parameter], first, last, view))
                place += last - first
            self.buffers.append(flat)
        self.parameters = tuple(dict.fromkeys(part.parameter for part in self.parts))

    def pack(self, gradients: Mapping[nn.Parameter, tuple[Tensor, int]], ranks: int) -> None:
        """Copy the gradients in, each divided by the number of ranks."""
        for parameter, start, stop, view in self.parts:
            gradient = gradients[parameter][0].detach().reshape(-1)[start:stop]
            torch.mul(gradient, 1 / ranks, out=view)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return bool(one is other or one == other)


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
