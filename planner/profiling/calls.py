"""The calls of a model's modules in one forward pass.

A layer is a module's call in which no other module is called.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

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
    kept_bytes : int
        Size of what autograd saved between the starts of this call and the next one.
    """

    module: str
    first: int
    end: int = 0
    leaf: bool = True
    activation_bytes: int = 0
    kept_bytes: int = 0


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


def trace(
    model: nn.Module, inputs: tuple[Any, ...], *, saved: bool = False
) -> tuple[list[Call], Any]:
    """Run the model once; return the calls of its modules by start, and its output.

    With `saved`, what autograd saves is counted: a tensor once, for the first call that makes it do
    so, and the model's own tensors, which are there anyway, not at all.
    """
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

    first_for: dict[tuple[int, int], Call] = {}

    def pack(tensor: Tensor) -> Tensor:
        if calls:
            first_for.setdefault(_place(tensor), calls[-1])
        return tensor

    with ExitStack() as hooks:
        if saved:
            hooks.enter_context(saved_tensors_hooks(pack, lambda tensor: tensor))
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
    _count_saved(model, first_for)
    return calls, output


def _count_saved(model: nn.Module, saved: Mapping[tuple[int, int], Call]) -> None:
    """Count what autograd saved for the calls; not the model's own tensors, which are there anyway.

    Parameters
    ----------
    model : Module
        The model; after its run, as its first run may make its parameters.
    saved : mapping of (int, int) to Call
        The first call that had the memory at each place saved.
    """
    own = {_place(tensor) for tensor in chain(model.parameters(), model.buffers())}
    for place, call in saved.items():
        if place not in own:
            call.kept_bytes += place[1]


def _place(tensor: Tensor) -> tuple[int, int]:
    """Return where a tensor's memory is, and how large."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


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
