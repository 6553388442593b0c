"""Random inputs of a given shape."""

import re
from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn

from planner.model.errors import InvalidInputError
from planner.model.validation import shown

TYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "float32": torch.float32,
        "float64": torch.float64,
        "float16": torch.float16,
        "bfloat16": torch.bfloat16,
        "int64": torch.int64,
        "int32": torch.int32,
        "int16": torch.int16,
        "int8": torch.int8,
        "uint8": torch.uint8,
        "bool": torch.bool,
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
