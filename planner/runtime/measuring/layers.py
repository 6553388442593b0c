"""Record when each layer computes, to draw a step by layers. Needs torch.

Hooks record the start of a layer's call in the forward pass, and in the backward pass the moment
its output's gradient is ready. The time up to the next record is the layer's. A layer is a module
without submodules. Hooks cost time, so they watch only steps that are drawn and not measured.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from planner.profiling.samples import tensors_in
from planner.runtime.measuring.drawn import Moment


@contextmanager
def watching(model: nn.Module) -> Iterator[list[Moment]]:
    """Watch a model's layers; yield the list of moments, which grows as the model computes."""
    moments: list[Moment] = []
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if not any(True for _ in module.children()):
                entered, left = _hooks(name or type(model).__name__, moments)
                hooks.callback(module.register_forward_pre_hook(entered).remove)
                hooks.callback(module.register_forward_hook(left).remove)
        yield moments


def _hooks(name: str, moments: list[Moment]) -> tuple[Any, Any]:
    def entered(_module: nn.Module, _inputs: Any) -> None:
        moments.append(Moment("forward", name, time.monotonic_ns()))

    def gradient_there(_gradient: Tensor) -> None:
        moments.append(Moment("backward", name, time.monotonic_ns()))

    def left(_module: nn.Module, _inputs: Any, output: Any) -> None:
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(gradient_there)

    return entered, left
