"""Contexts of a measurement, which restore the previous state afterwards."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from planner.profiling.samples import tensors_in


@contextmanager
def kept_gradients(model: nn.Module, inputs: tuple[Any, ...]) -> Iterator[None]:
    """Restore the gradients of the model and its inputs at the end."""
    leaves = [tensor for tensor in (*model.parameters(), *tensors_in(inputs)) if tensor.is_leaf]
    gradients = [leaf.grad for leaf in leaves]
    try:
        yield
    finally:
        model.zero_grad(set_to_none=True)  # includes parameters created lazily meanwhile
        for leaf, gradient in zip(leaves, gradients, strict=True):
            leaf.grad = gradient


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable the garbage collector."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def with_threads(threads: int | None) -> Iterator[None]:
    """Set the number of torch's threads; None keeps the current number."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
