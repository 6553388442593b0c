"""What must hold while a model is measured, and be as before afterwards."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from planner.profiling.tensors import tensors_in

__all__ = ["kept_gradients", "no_collection", "with_threads"]


@contextmanager
def kept_gradients(model: nn.Module, inputs: tuple[Any, ...]) -> Iterator[None]:
    """Put the gradients of the model and of its inputs back to what they were."""
    leaves = [tensor for tensor in (*model.parameters(), *tensors_in(inputs)) if tensor.is_leaf]
    gradients = [leaf.grad for leaf in leaves]
    try:
        yield
    finally:
        model.zero_grad(set_to_none=True)  # of lazily made parameters, too
        for leaf, gradient in zip(leaves, gradients, strict=True):
            leaf.grad = gradient


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector from running."""
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
    """Let torch compute with that many threads; None leaves their number alone."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
