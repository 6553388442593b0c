"""Partitioned optimiser states: each rank updates some elements, with the user's optimiser.

Problem: The optimiser, its groups and its schedulers must apply to this rank's elements alone, also
in a thread while the training loop sets up the next step.
Method: Flat views of the parameters' memory, one per run of elements, replace the parameters in the
optimiser's groups. A twin with its class, hooks and state, but own groups and gradients, updates.
Guarantee: Elements are updated as in whole parameters, because only elementwise optimisers are
accepted; for the last bit see docs/runtime.md.
Complexity: Work and state of this rank's elements; copies of non-contiguous parameters per step.
Source: Rajbhandari et al., "ZeRO", stage 1 (partitioned optimiser states).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim import Optimizer

from planner.model.errors import InvalidInputError
from planner.programs.forms import Direction
from planner.runtime.executors.base import Executor
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.messages import Taken
from planner.runtime.model.parameters import Elements, SomeParameters, copied, parameters_of

ELEMENTWISE: tuple[type[Optimizer], ...] = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adagrad,
    torch.optim.RMSprop,
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Rprop,
    torch.optim.ASGD,
)
"""Elementwise optimisers: a new element depends only on the old one and its own gradients."""


class SlicedOptimizer:
    """An optimiser that updates slices of parameters until `restore`.

    `slices` are this rank's; a parameter may have several or none.
    """

    def __init__(self, optimizer: Optimizer, slices: Iterable[Elements]) -> None:
        self._optimizer = optimizer
        # A slice is a view of its parameter's memory, if that is contiguous.
        self._stand_ins = [
            (own, nn.Parameter(own.of(flat_values(own.parameter)))) for own in slices
        ]
        several: dict[nn.Parameter, list[nn.Parameter]] = {}
        for own, stand_in in self._stand_ins:
            several.setdefault(own.parameter, []).append(stand_in)
        self._updated = [nn.Parameter(stand_in.data) for _, stand_in in self._stand_ins]
        self._groups: list[dict[str, Any]] = [
            {key: list(group[key]) for key in ("params", "param_names") if key in group}
            for group in optimizer.param_groups
        ]
        whole = dict(optimizer.state)
        # Only state from before the first step (Adagrad has some); later state becomes stale.
        self._state = {
            parameter: state for parameter, state in whole.items() if state.get("step", 1) == 0
        }
        optimizer.state.clear()
        for own, stand_in in self._stand_ins:
            if own.parameter in whole:
                optimizer.state[stand_in] = {
                    key: _of_slice(value, own) for key, value in whole[own.parameter].items()
                }
        for group, before in zip(optimizer.param_groups, self._groups, strict=True):
            for key, values in before.items():
                group[key] = [
                    stand_in if key == "params" else value
                    for value, parameter in zip(values, before["params"], strict=True)
                    for stand_in in several.get(parameter, ())
                ]
        stand_ins = (stand_in for _, stand_in in self._stand_ins)
        self._twin = _twin_of(optimizer, dict(zip(stand_ins, self._updated, strict=True)))
        self._some = SomeParameters(self._twin, self._updated)

    def remember(self, flats: Mapping[nn.Parameter, Tensor]) -> None:
        """Remember the current settings and the parameters' memory, for the updates that follow.

        The training loop calls it in place of the optimiser's `step`.
        """
        for (own, stand_in), updated in zip(self._stand_ins, self._updated, strict=True):
            values = own.of(flats[own.parameter])
            if stand_in.data_ptr() != values.data_ptr():
                stand_in.data = updated.data = values
            self._twin.state[updated] = self._optimizer.state[stand_in]
        self._some.remember(self._optimizer.param_groups)
        self._optimizer._opt_called = True  # type: ignore[attr-defined]  # for schedulers

    def step(self, gradients: Mapping[int, Tensor]) -> None:
        """Update slices, given by number, with flat gradients; in any thread."""
        for number, gradient in gradients.items():
            self._updated[number].grad = gradient
        try:
            self._some.step(gradients)
        finally:
            for number in gradients:
                self._updated[number].grad = None

    def restore(self) -> None:
        """Give the optimiser its parameters back, with its state from before the first step."""
        for group, before in zip(self._optimizer.param_groups, self._groups, strict=False):
            group.update(before)
        self._optimizer.state.clear()
        self._optimizer.state.update(self._state)


def check_elementwise(optimizer: Optimizer) -> None:
    """Check that an optimiser can update slices, and that its state is that of whole parameters.

    Raises an `InvalidInputError` otherwise.
    """
    if type(optimizer) not in ELEMENTWISE:  # a subclass may do anything
        names = ", ".join(kind.__name__ for kind in ELEMENTWISE)
        raise InvalidInputError(
            "optimizer",
            "each rank updates only some elements of a parameter, so expected one of torch's "
            f"optimisers that update each element by itself ({names}), got "
            f"{type(optimizer).__name__}",
        )
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                raise InvalidInputError(
                    "optimizer",
                    f"expected the state of whole parameters, got {key} of shape "
                    f"{tuple(value.shape)} of a parameter of {tuple(parameter.shape)}: load what "
                    "ranks have of their own elements after attach",
                )


def flat_values(parameter: nn.Parameter) -> Tensor:
    """Return a parameter's flat values; writing to them does not change its version number."""
    return parameter.data.contiguous().view(-1)


def _twin_of(optimizer: Optimizer, parameters: Mapping[nn.Parameter, nn.Parameter]) -> Optimizer:
    """Return an optimiser with the same hooks for other parameters."""
    twin: Optimizer = object.__new__(type(optimizer))
    twin.__dict__ = {
        **optimizer.__dict__,
        "state": {},
        "param_groups": [
            {**group, "params": [parameters[parameter] for parameter in group["params"]]}
            for group in optimizer.param_groups
        ],
    }
    twin.__dict__.pop("step", None)  # schedulers put one there that calls the original's
    return twin


def _of_slice(value: Any, own: Elements) -> Any:
    """Return the entry of an optimiser's state for a slice of its parameter."""
    if isinstance(value, Tensor) and value.shape == own.parameter.shape and value.dim():
        value = own.of(value)
    return copied(value)


# ---
# Common part of executors in which each rank updates some elements of the parameters.


class Sent(NamedTuple):
    """A transfer of every step, and `work`, which does it.

    A push gets the gradients of `parameters`, and completes the means of this rank's slices with
    the numbers `slices`. A pull brings new values of `parameters`.
    """

    direction: Direction
    parameters: tuple[nn.Parameter, ...]
    work: Callable[[Mapping[nn.Parameter, Tensor]], None]
    slices: tuple[int, ...] = ()


class SlicedExecutor(Executor):
    """An executor in which each rank updates some elements.

    A push leaves once its gradients are complete. `step` releases the pulls; before the first pull
    after pushes, the channel's thread updates this rank's slices. The next forward pass waits for a
    parameter's last pull where it reads the parameter.

    ``executor.optimizer.state_dict()`` is the state of these elements alone: a checkpoint needs the
    state of every rank, and a resumed job as many ranks. `close` gives the optimiser its parameters
    back, without that state.

    Values written into the model's parameters between steps count if all ranks write them after
    `finish`.
    """

    def begin(
        self, transfers: Sequence[Sent], slices: Iterable[Elements], means: Sequence[Tensor]
    ) -> None:
        """Take over the optimiser: it updates this rank's slices, none empty, with their means."""
        instead = "to clip or scale gradients takes their means, which no rank has as a whole"
        pulls, pushes = (
            [sent.parameters for sent in transfers if sent.direction == direction]
            for direction in ("pull", "push")
        )
        self.follow(pushes, pulls, instead)
        self._transfers, self._means = transfers, means
        self._sliced = SlicedOptimizer(self.optimizer, slices)
        self.closing(self._sliced.restore)
        self._groups = parameters_of(self.optimizer)
        self.flats: dict[nn.Parameter, Tensor] = {}
        """Where new values of parameters go: their own memory if it is contiguous."""
        self._open(0)

    def update(self) -> None:
        """Release the pulls and the updates before them; submit the next step's transfers."""
        self.hand_over()
        self.flats = {parameter: flat_values(parameter) for parameter in self.names}
        self._sliced.remember(self.flats)
        self.awaited = [ticket for ticket in self._tickets if ticket.direction == "pull"]
        for ticket in self._tickets:
            if not ticket.ready:
                self.channel.release(ticket)
        self._open(self.steps + 1)

    def _open(self, step: int) -> None:
        """Submit a step's transfers, and the updates before pulls."""
        taken = self.begin_step()
        self._tickets: list[Ticket] = []
        self.sending = []
        pulls, pushed = 0, list[int]()
        for sent in self._transfers:
            if sent.direction == "push":
                pushed += sent.slices
                work, number = partial(self._push, sent, taken), len(self.sending)
                ticket = Ticket(work, step, number, "push", ready=not sent.parameters)
                self.sending.append(ticket)
            else:
                if pushed:
                    means = {number: self._means[number] for number in pushed}
                    work = partial(self._sliced.step, means)
                    self._tickets.append(Ticket(work, step, pulls, kind="update"))
                    pushed = []
                # Writing in the channel's thread is safe: all parameters are pending, and the guard
                # blocks reads until `finish_one` has waited for the last pull.
                ticket = Ticket(partial(sent.work, {}), step, pulls, "pull")
                pulls += 1
            self._tickets.append(ticket)
        self.channel.submit(self._tickets)

    def _push(self, sent: Sent, taken: Taken) -> None:
        """Send the gradients of a push."""
        entries = ((parameter, taken[self._index[parameter]]) for parameter in sent.parameters)
        sent.work({parameter: entry[0] for parameter, entry in entries if entry is not None})

    def next_wanted(self, needed: int | None) -> Ticket:
        """Return the needed pull, or the last one."""
        return self.awaited[-1 if needed is None else needed]

    def complete(self, numbers: Sequence[int], batch: int) -> None:  # noqa: ARG002
        """Give parameters the values that have arrived."""
        with torch.inference_mode(mode=False), torch.no_grad():
            for number in numbers:
                parameter = self.numbered[number]
                values = self.flats[parameter]
                if values.data_ptr() == parameter.data_ptr():
                    increment_version(parameter)  # autograd must see the channel's thread's write
                else:
                    parameter.copy_(values.view_as(parameter))
