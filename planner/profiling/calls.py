"""The calls of a model's modules in one forward pass.

A layer is a module's call in which no other module is called.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from planner.errors import MeasurementError
from planner.profiling.graph import order_number
from planner.profiling.tensors import byte_size

__all__ = ["Call", "forward", "layer_names", "observed_modules", "trace"]


@dataclass(slots=True)
class Call:
    """One call of a module.

    Attributes
    ----------
    module : str
        Its name in the model; empty for the model itself.
    first, end : int
        The autograd nodes made during the call have order numbers in [first, end).
    leaf : bool
        Whether no other module was called during the call.
    activation_bytes : int
        Size of what it returned.
    """

    module: str
    first: int
    end: int = 0
    leaf: bool = True
    activation_bytes: int = 0


def observed_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules whose calls count, with their names.

    A parametrisation (such as weight normalisation) is part of the module it makes a weight for.

    Raises
    ------
    MeasurementError
        If a module's calls cannot be observed.
    """
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise MeasurementError(
                f"{name or 'the model'} is scripted, which hides its layers: measure the model "
                "it was scripted from"
            )
        if "parametrizations" not in name.split("."):
            yield name, module


def forward(model: nn.Module, inputs: tuple[Any, ...]) -> Any:
    """Return the model's output.

    Raises
    ------
    MeasurementError
        If the model raises an error.
    """
    try:
        return model(*inputs)
    except Exception as error:
        raise MeasurementError(
            f"the model's forward pass failed: {type(error).__name__}: {error}"
        ) from error


def trace(model: nn.Module, inputs: tuple[Any, ...]) -> tuple[list[Call], Any]:
    """Run the model once; return the calls of its modules by start, and its output."""
    calls: list[Call] = []
    running: list[Call] = []
    probe = torch.zeros((), requires_grad=True)

    def enter(name: str) -> None:
        if running:
            running[-1].leaf = False
        call = Call(name, _next_number(probe))
        calls.append(call)
        running.append(call)

    def leave(output: Any) -> None:
        call = running.pop()
        call.end = _next_number(probe)
        call.activation_bytes = byte_size(output)

    with ExitStack() as hooks:
        for name, module in observed_modules(model):
            before = module.register_forward_pre_hook(
                lambda _module, _args, name=name: enter(name), prepend=True
            )
            hooks.callback(before.remove)
            after = module.register_forward_hook(
                lambda _module, _args, output: leave(output), always_call=True
            )
            hooks.callback(after.remove)
        output = forward(model, inputs)
    return calls, output


def layer_names(leaves: Sequence[Call], model: nn.Module) -> list[str]:
    """Return a distinct name for each leaf call: the module's, with ``#2`` at its second call."""
    times: dict[str, int] = {}
    names = []
    for leaf in leaves:
        times[leaf.module] = times.get(leaf.module, 0) + 1
        name = leaf.module or type(model).__name__
        names.append(name if times[leaf.module] == 1 else f"{name}#{times[leaf.module]}")
    return names


def _next_number(probe: Tensor) -> int:
    """Return an order number above those of all nodes so far, and below those to come."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        node = probe.clone().grad_fn
    assert node is not None
    return order_number(node)
