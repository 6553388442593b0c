"""Lets an optimiser update some of its parameters at a time, with the settings of one moment.

Problem. A step's gradients arrive one batch after the other, while learning-rate schedulers already
set up the next step; an optimiser's `step` looks at all its parameters.

Method. While it steps, its groups hold just the parameters that are to be updated, and the settings
that were remembered. Groups of none are left out for torch's own optimisers, which do not mind;
others may count on the places of their groups, so these stay, empty.

Guarantee. After a step the groups are what they were before it. An optimiser that keeps what it
counts in its groups is found out.

Complexity. O(n log n) for n parameters to update, and O(settings) for each of their groups; for
optimisers that are not torch's, for each group. Source. Own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

__all__ = ["SomeParameters", "copied"]


class SomeParameters:
    """An optimiser's parameters, some of which are updated at a time.

    Parameters
    ----------
    optimizer : Optimizer
        Its groups keep their parameters.
    parameters : sequence of Parameter
        What may be updated; here each goes by its number.
    """

    def __init__(self, optimizer: Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self._optimizer = optimizer
        self._leaves_out = type(optimizer).__module__.startswith(f"{torch.optim.__name__}.")
        self._parameters = parameters
        place = {
            parameter: (number, place)
            for number, group in enumerate(optimizer.param_groups)
            for place, parameter in enumerate(group["params"])
        }
        self._place = [place[parameter] for parameter in parameters]
        self._settings: list[dict[str, Any]] = []

    def remember(self, groups: Iterable[Mapping[str, Any]] | None = None) -> None:
        """Keep the settings that its groups, or others, have now for the steps that follow."""
        self._settings = [
            {key: copied(value) for key, value in group.items() if key != "params"}
            for group in (self._optimizer.param_groups if groups is None else groups)
        ]

    def step(self, numbers: Iterable[int]) -> str | None:
        """Update some parameters by their gradients; return a setting that this changed, if any."""
        groups = self._optimizer.param_groups
        every = list(groups)
        chosen: dict[int, list[nn.Parameter]] = {}
        if not self._leaves_out:
            chosen = {number: [] for number in range(len(self._settings))}
        for index in sorted(numbers, key=self._place.__getitem__):
            chosen.setdefault(self._place[index][0], []).append(self._parameters[index])
        kept = {number: dict(every[number]) for number in chosen}
        try:
            for number, parameters in chosen.items():
                every[number].update(self._settings[number], params=parameters)
            groups[:] = [every[number] for number in chosen]
            self._optimizer.step()
            changed = (_changed(every[number], self._settings[number]) for number in chosen)
            return next(filter(None, changed), None)
        finally:
            groups[:] = every
            for number, before in kept.items():
                every[number].update(before)


def _changed(group: Mapping[str, Any], settings: Mapping[str, Any]) -> str | None:
    """Return a setting of a group that is not the one that was remembered."""
    for key, value in group.items():
        if key != "params" and not (key in settings and _same(value, settings[key])):
            return key
    return None


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        return torch.equal(value, other)
    return bool(value is other or value == other)


def copied(value: Any) -> Any:
    """Return what does not change with a setting, or an entry of a state."""
    return value.clone() if isinstance(value, Tensor) else value
