"""Text and hashes to compare the optimisers of all ranks.

At the start parameters are those of rank 0, but optimiser states are each rank's own. If only some
ranks have loaded a checkpoint, or have another learning rate, weights would drift apart unnoticed.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


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


def contents(parameters: Mapping[str, nn.Parameter]) -> str:
    """Return a hash of the values of parameters; reads all of them."""
    digest = sha256()
    for name, parameter in parameters.items():
        digest.update(f"{name} {_plain(parameter)}".encode())
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
