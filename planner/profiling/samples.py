"""Random inputs of a given shape, and the tensors in what a model takes and returns."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from planner.model.errors import InvalidInputError, MeasurementError
from planner.model.validation import shown

TYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        name: getattr(torch, name)
        for name in (
            *("float32", "float64", "float16", "bfloat16"),
            *("int64", "int32", "int16", "int8", "uint8", "bool"),
        )
    }
)
"""Input types, by their name in a shape such as ``128:int64``."""

SHAPE = re.compile(r"([1-9][0-9]{0,9}(?:x[1-9][0-9]{0,9})*)(?::([a-z0-9]+))?")


def sample_input(model: nn.Module, shape: str, batch_size: int) -> Tensor:
    """Return a random input, the same at each call.

    Floats are normally distributed. Integers are valid rows of every embedding of the model, or 0
    and 1 without embeddings. A malformed or too large `shape` raises an `InvalidInputError`.
    """
    match = SHAPE.fullmatch(shape)
    if match is None:
        raise InvalidInputError(
            "input_shape", f"expected sizes such as 3x224x224 or 128:int64, got {shown(shape)}"
        )
    name = match[2] or "float32"
    if name not in TYPES:
        raise InvalidInputError(
            "input_shape", f"expected a type among {', '.join(TYPES)}, got {name}"
        )
    kind = TYPES[name]
    sizes = (batch_size, *map(int, match[1].split("x")))
    random = torch.Generator().manual_seed(0)
    try:
        if kind.is_floating_point:
            return torch.randn(sizes, generator=random, dtype=kind)
        return torch.randint(_rows(model, kind), sizes, generator=random, dtype=kind)
    except (RuntimeError, MemoryError, OverflowError) as error:
        raise InvalidInputError(
            "input_shape", f"no input of {shown(shape)} and {batch_size} samples: {error}"
        ) from error


def _rows(model: nn.Module, kind: torch.dtype) -> int:
    """Return how many integers from 0 every embedding has rows for and `kind` can hold."""
    embeddings = [
        module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)
    ]
    largest = 1 if kind is torch.bool else torch.iinfo(kind).max
    return min([*embeddings, largest + 1]) if embeddings else 2


# ---
# The tensors inside a module's output, their size, and a loss made of them.


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
