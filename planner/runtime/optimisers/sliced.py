"""Lets each rank update some elements of the parameters, with the user's optimiser.

Problem. Where each rank updates only a part of the weights, the user's optimiser has to work on
that part, with the user's groups and settings, and learning-rate schedulers have to reach it; also
in a thread beside the training loop, which by then may set up its next step.

Method. In the optimiser's groups the parameters are replaced by flat ones that hold this rank's
elements of them, one for each run of elements: views of the parameters' own memory, which the
optimiser updates where it lies. New values of the other elements are written there as they arrive.
The groups themselves stay, and so do their settings. What updates is a twin of the optimiser: it
has its class, its hooks and its state, but its own groups and gradients, which no loop touches.

Guarantee. The elements come out as if the whole parameters had been updated, because only
optimisers are accepted that update each element by itself. (In bfloat16 and float16, and in fused
optimisers, torch rounds the last few elements of a tensor in another way than those before; there
the last bit may depend on where parameters are cut.)

Complexity. The optimiser's work and state are those of this rank's elements alone. Parameters whose
elements do not lie in their order are copied in each step.

Source. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
stage 1 (partitioned optimiser states).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.errors import InvalidInputError
from planner.runtime.model.parameters import Elements
from planner.runtime.optimisers.some_parameters import SomeParameters, copied

__all__ = ["ELEMENTWISE", "SlicedOptimizer", "check_elementwise", "flat_values"]

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


class SlicedOptimizer:
    """An optimiser that updates slices of parameters, until it is given the parameters back.

    Parameters
    ----------
    optimizer : Optimizer
        One that `check_elementwise` accepts.
    slices : iterable of Elements
        This rank's slices, several of a parameter or none.
    """

    def __init__(self, optimizer: Optimizer, slices: Iterable[Elements]) -> None:
        self._optimizer = optimizer
        # A slice lies in its parameter's own memory, if that is flat.
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
        # What Adagrad has before its first step; later on it would be out of date.
        self._state = {each: state for each, state in whole.items() if not _begun(state)}
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
        self._twin = _twin_of(
            optimizer,
            {
                stand_in: updated
                for (_, stand_in), updated in zip(self._stand_ins, self._updated, strict=True)
            },
        )
        self._some = SomeParameters(self._twin, self._updated)

    def remember(self, flats: Mapping[nn.Parameter, Tensor]) -> None:
        """Keep the settings that hold now, and where the parameters lie, for what is updated then.

        Called by the training loop, where it would call the optimiser's `step`.
        """
        for (own, stand_in), updated in zip(self._stand_ins, self._updated, strict=True):
            values = own.of(flats[own.parameter])
            if stand_in.data_ptr() != values.data_ptr():
                stand_in.data = updated.data = values
            self._twin.state[updated] = self._optimizer.state[stand_in]
        self._some.remember(self._optimizer.param_groups)
        self._optimizer._opt_called = True  # type: ignore[attr-defined]  # for schedulers

    def step(self, gradients: Mapping[int, Tensor]) -> None:
        """Update slices, which go by their number, by a flat gradient for each; in any thread."""
        for number, gradient in gradients.items():
            self._updated[number].grad = gradient
        try:
            self._some.step(gradients)
        finally:
            for number in gradients:
                self._updated[number].grad = None

    def restore(self) -> None:
        """Give the optimiser its parameters back, with the state it had before its first step."""
        for group, before in zip(self._optimizer.param_groups, self._groups, strict=False):
            group.update(before)
        self._optimizer.state.clear()
        self._optimizer.state.update(self._state)


def check_elementwise(optimizer: Optimizer) -> None:
    """Check that an optimiser can work on slices; if it has begun, on whole parameters.

    Raises
    ------
    InvalidInputError
        If it cannot.
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
    """Return a parameter's elements in their order, whose changes do not count as its own."""
    return parameter.data.contiguous().view(-1)


def _twin_of(optimizer: Optimizer, parameters: Mapping[nn.Parameter, nn.Parameter]) -> Optimizer:
    """Return an optimiser with the same hooks, for other parameters in place of its own."""
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


def _begun(state: Mapping[str, Any]) -> bool:
    return float(state.get("step", 1)) != 0


def _of_slice(value: Any, own: Elements) -> Any:
    """Return what an optimiser's state of a parameter is for a slice of it."""
    if isinstance(value, Tensor) and value.shape == own.parameter.shape and value.dim():
        value = own.of(value)
    return copied(value)
