"""Record the module calls of one forward pass.

A layer is a leaf call: a module call during which no other module is called.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from planner.model.errors import MeasurementError
from planner.profiling.graph import order_number
from planner.profiling.samples import byte_size


@dataclass(slots=True)
class Call:
    """One call of a module, with its autograd order numbers [first, end) and sizes."""

    module: str  # its name in the model; empty for the model itself
    first: int
    end: int = 0
    leaf: bool = True
    activation_bytes: int = 0  # size of the output
    kept_bytes: int = 0  # tensors that autograd saves from this call's start to the next call's


def observed_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules whose calls are recorded, with their names.

    A parametrisation (such as weight normalisation) belongs to its module and is left out. Scripted
    modules raise a `MeasurementError`, because hooks cannot observe them.
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
    """Return the model's output; an error of the model becomes a `MeasurementError`."""
    try:
        return model(*inputs)
    except Exception as error:
        raise MeasurementError(
            f"the model's forward pass failed: {type(error).__name__}: {error}"
        ) from error


def trace(
    model: nn.Module, inputs: tuple[Any, ...], *, saved: bool = False
) -> tuple[list[Call], Any]:
    """Run the model once; return its module calls in the order of their starts, and its output.

    With `saved`, count the tensors that autograd saves. Each tensor counts once, for the first call
    that saves it. The model's own parameters and buffers do not count.
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
    """Add the saved bytes to the calls, without the model's own parameters and buffers.

    Call after the run: lazy parameters get their memory in the first run.
    """
    own = {_place(tensor) for tensor in chain(model.parameters(), model.buffers())}
    for place, call in saved.items():
        if place not in own:
            call.kept_bytes += place[1]


def _place(tensor: Tensor) -> tuple[int, int]:
    """Return the address of a tensor's memory and its size (bytes)."""
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
    """Return an autograd order number between those of all earlier and all later nodes."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        node = probe.clone().grad_fn
    assert node is not None
    return order_number(node)
