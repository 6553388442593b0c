"""Update some parameters of an optimiser at a time, with remembered settings.

Problem: Gradients arrive in batches while learning-rate schedulers set up the next step. An
optimiser's `step` looks at all parameters.
Method: During a step the groups hold only the parameters to update, with the remembered settings.
Empty groups are left out for torch's own optimisers. Others may rely on group positions and keep
them.
Guarantee: The groups are restored after a step. An optimiser that counts in its groups is detected.
Complexity: O(n log n) for n parameters and O(settings) per group concerned; for optimisers that are
not torch's, per group.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class SomeParameters:
    """The parameters of an optimiser, some of which are updated at a time, by their number."""

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
        """Remember the current settings of the optimiser's groups, or of others."""
        self._settings = [
            {key: copied(value) for key, value in group.items() if key != "params"}
            for group in (self._optimizer.param_groups if groups is None else groups)
        ]

    def step(self, numbers: Iterable[int]) -> str | None:
        """Update parameters by their gradients; return a setting the optimiser changed, or None."""
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
    """Return the first setting of a group that differs from the remembered one."""
    for key, value in group.items():
        if key != "params" and not (key in settings and _same(value, settings[key])):
            return key
    return None


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        return torch.equal(value, other)
    return bool(value is other or value == other)


def copied(value: Any) -> Any:
    """Return a copy that later changes of a setting or state do not affect."""
    return value.clone() if isinstance(value, Tensor) else value


# ---
# Text and hashes to compare the optimisers of all ranks.
#
# At the start parameters are those of rank 0, but optimiser states are each rank's own. If only
# some ranks have loaded a checkpoint, or have another learning rate, weights would drift apart
# unnoticed.


def settings(optimizer: Optimizer) -> tuple[object, ...]:
    """Return an optimiser's class, and the size and settings of each group."""
    groups = (
        (
            len(group["params"]),
            *sorted((key, _plain(value)) for key, value in group.items() if key != "params"),
        )
        for group in optimizer.param_groups
    )
    return type(optimizer).__name__, *groups


def state(optimizer: Optimizer, names: Mapping[nn.Parameter, str]) -> str:
    """Return a hash of the optimiser's state of the named parameters; reads all of it."""
    digest = sha256()
    for parameter, name in names.items():
        for key, value in sorted(optimizer.state.get(parameter, {}).items(), key=str):
            digest.update(f"{name} {key} {_plain(value)}".encode())
    return digest.hexdigest()


def _plain(value: Any) -> str:
    """Return a text that is equal in all processes; for other objects the type."""
    if isinstance(value, Tensor):
        data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return f"{value.dtype} {tuple(value.shape)} {sha256(data.numpy().data).hexdigest()}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_plain, value))}]"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return type(value).__name__
