"""Lets each rank update some elements of the parameters, with the user's optimiser.

Problem. Where each rank updates only a part of the weights, the user's optimiser has to work on
that part, with the user's groups and settings, and learning-rate schedulers have to reach it.

Method. In the optimiser's groups the parameters are replaced by flat ones that hold this rank's
elements of them: views of the parameters' own memory, which the optimiser updates where it lies.
New values of the other elements are written there as they arrive. The groups themselves stay, and
so do their settings.

Guarantee. The elements come out as if the whole parameters had been updated, because only
optimisers are accepted that update each element by itself. (In bfloat16 and float16, and in fused
optimisers, torch rounds the last few elements of a tensor in another way than those before; there
the last bit may depend on where parameters are cut.)

Complexity. The optimiser's work and state are those of this rank's elements alone. Parameters whose
elements do not lie in their order are copied in each step.

Source. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
stage 1 (partitioned optimiser states).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim import Optimizer

from planner.errors import InvalidInputError
from planner.runtime.executors.base import Executor, parameters_of
from planner.runtime.executors.collected import Gradients, version

__all__ = ["ELEMENTWISE", "Slice", "SlicedExecutor", "SlicedOptimizer", "check_elementwise"]

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
"""Optimisers for which a new element depends on the old one and its own gradients alone."""


class Slice(NamedTuple):
    """Elements start … stop-1 of a parameter, flattened, and what stands for them."""

    start: int
    stop: int
    stand_in: nn.Parameter

    @classmethod
    def of(cls, parameter: nn.Parameter, start: int, stop: int) -> Self:
        """Return a slice in a parameter's own memory, if that is flat."""
        return cls(start, stop, nn.Parameter(_flat(parameter)[start:stop]))


class SlicedExecutor(Executor):
    """What executors have in common in which each rank updates some elements of the parameters."""

    def begin(
        self, batches: Sequence[Iterable[nn.Parameter]], slices: Mapping[nn.Parameter, Slice]
    ) -> None:
        """Take over the optimiser.

        Parameters
        ----------
        batches : sequence of iterable of Parameter
            Whose gradients leave together.
        slices : Mapping
            This rank's slice of each parameter that it has elements of.
        """
        instead = "to clip or scale gradients takes their means, which no rank has as a whole"
        self.gradients = Gradients(batches, self.names, self.stop, instead)
        self._sliced = SlicedOptimizer(self.optimizer, slices)
        self.flats = {one: _flat(one) for one in self.names}
        """Where new values of each parameter are written: in its own memory if that is flat."""
        self._groups = parameters_of(self.optimizer)
        self._versions = {one: version(one) for one in self.names}

    def optimise(self, means: Mapping[nn.Parameter, Tensor]) -> None:
        """Update this rank's slices of what the parameters are now, with a gradient for each."""
        self.flats = {one: _flat(one) for one in self.names}
        with self.trace.span("update", self.steps), self.optimising():
            self._sliced.step(means, self.flats)
        self._versions = {one: version(one) for one in self.names}

    def put_in_place(self, parameter: nn.Parameter, batch: int) -> None:
        """Say that all new values of a pending parameter have arrived, and with what."""
        if version(parameter) != self._versions[parameter]:
            self.stop(
                f"{self.names[parameter]} was changed while new values were on their way: call "
                "finish() before",
                batch,
            )
        self.gate.pending.discard(parameter)
        with torch.inference_mode(mode=False), torch.no_grad():
            values = self.flats[parameter]
            if values.data_ptr() == parameter.data_ptr():
                increment_version(parameter)  # as if they had been written here and now
            else:
                parameter.copy_(values.view_as(parameter))
        self._versions[parameter] = version(parameter)

    def close(self) -> None:
        """Finish, leave the model as a plain one, and give the optimiser its parameters back."""
        if not self._closed:
            try:
                super().close()
            finally:
                self._sliced.restore()


class SlicedOptimizer:
    """An optimiser that updates slices of parameters, until it is given the parameters back.

    Parameters
    ----------
    optimizer : Optimizer
        One that `check_elementwise` accepts.
    slices : Mapping
        This rank's slice of each parameter; parameters that are not here are left out.
    """

    def __init__(self, optimizer: Optimizer, slices: Mapping[nn.Parameter, Slice]) -> None:
        self._optimizer = optimizer
        self._slices = slices
        self._groups: list[dict[str, Any]] = [
            {key: list(group[key]) for key in ("params", "param_names") if key in group}
            for group in optimizer.param_groups
        ]
        self._state = dict(optimizer.state)  # what Adagrad has before its first step
        optimizer.state.clear()
        for parameter, one in slices.items():
            if parameter in self._state:
                optimizer.state[one.stand_in] = {
                    key: _part(value, parameter, one)
                    for key, value in self._state[parameter].items()
                }
        for group, before in zip(optimizer.param_groups, self._groups, strict=True):
            places = [place for place, one in enumerate(before["params"]) if one in slices]
            for key, values in before.items():
                group[key] = [values[place] for place in places]
            group["params"] = [slices[one].stand_in for one in group["params"]]

    def step(
        self, gradients: Mapping[nn.Parameter, Tensor], flats: Mapping[nn.Parameter, Tensor]
    ) -> None:
        """Update the slices of flat parameters, with a flat gradient for each."""
        for parameter, one in self._slices.items():
            own = flats[parameter][one.start : one.stop]
            if one.stand_in.data_ptr() != own.data_ptr():
                one.stand_in.data = own
            one.stand_in.grad = gradients[parameter]
        try:
            self._optimizer.step()
        finally:
            for one in self._slices.values():
                one.stand_in.grad = None

    def restore(self) -> None:
        """Give the optimiser its parameters back, with the state it began with."""
        for group, before in zip(self._optimizer.param_groups, self._groups, strict=False):
            group.update(before)
        self._optimizer.state.clear()
        self._optimizer.state.update(self._state)


def check_elementwise(optimizer: Optimizer) -> None:
    """Check that an optimiser can work on slices, and has not begun.

    Raises
    ------
    InvalidInputError
        If it cannot, or has.
    """
    if type(optimizer) not in ELEMENTWISE:  # a subclass may do anything
        names = ", ".join(kind.__name__ for kind in ELEMENTWISE)
        raise InvalidInputError(
            "optimizer",
            "each rank updates only some elements of a parameter, so expected one of torch's "
            f"optimisers that update each element by itself ({names}), got "
            f"{type(optimizer).__name__}",
        )
    for state in optimizer.state.values():
        if float(state.get("step", 1)) != 0:
            raise InvalidInputError(
                "optimizer",
                "expected one that has not taken a step: a rank keeps the state of its own "
                "elements alone",
            )


def _flat(parameter: nn.Parameter) -> Tensor:
    """Return a parameter's elements in their order, whose changes do not count as its own."""
    return parameter.data.contiguous().view(-1)


def _part(value: Any, parameter: nn.Parameter, one: Slice) -> Any:
    if isinstance(value, Tensor) and value.shape == parameter.shape and value.dim():
        return value.reshape(-1)[one.start : one.stop].clone()
    return value.clone() if isinstance(value, Tensor) else value
