"""The tensors inside a module's output, their size, and a loss made of them."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from planner.model.errors import MeasurementError


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested sequences, mappings and dataclasses, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))


def byte_size(value: Any) -> int:
    """Return the total size of the distinct tensors in `value` (bytes)."""
    distinct = {id(tensor): tensor for tensor in tensors_in(value)}
    return sum(tensor.numel() * tensor.element_size() for tensor in distinct.values())


def loss_of(output: Any) -> Tensor:
    """Return a scalar to differentiate: the model's own loss, or a stand-in.

    The stand-in sums the means of all floating-point tensors of the output, so that every used
    parameter gets a gradient. A `MeasurementError` is raised if no output depends on a trainable
    one.
    """
    own = getattr(output, "loss", None)
    chosen = [own] if isinstance(own, Tensor) else list(tensors_in(output))
    means = [
        tensor.float().mean()
        for tensor in chosen
        if tensor.is_floating_point() and tensor.requires_grad and tensor.numel()
    ]
    if not means:
        raise MeasurementError(
            "the model's output depends on no trainable parameter: there is no backward pass"
        )
    return torch.stack(means).sum() if len(means) > 1 else means[0]
