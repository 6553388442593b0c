"""Record the module calls of one forward pass, and the autograd nodes behind tensors.

A layer is a leaf call: a module call during which no other module is called.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node, saved_tensors_hooks

from planner.model.errors import MeasurementError, PlannerError
from planner.profiling.samples import byte_size, tensors_in


@dataclass(slots=True)
class Call:
    """One call of a module, with its autograd order numbers [first, end) and sizes."""

    module: str  # its name in the model; empty for the model itself
    first: int
    end: int = 0
    leaf: bool = True
    activation_bytes: int = 0  # size of the output
    kept_bytes: int = 0  # tensors that autograd saves from this call's start to the next call's
    read: tuple[int, ...] | None = None  # shape of the first tensor it reads, and of its output
    made: tuple[int, ...] | None = None
    begun: int = 0  # the count of the caller of `trace` at its start and end
    ended: int = 0


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


@contextmanager
def errors_of(which: str) -> Iterator[None]:
    """Turn errors of the model's forward or backward pass into a `MeasurementError`."""
    try:
        yield
    except PlannerError:
        raise
    except Exception as error:
        raise MeasurementError(
            f"the model's {which} pass failed: {type(error).__name__}: {error}"
        ) from error


def trace(
    model: nn.Module,
    inputs: tuple[Any, ...],
    *,
    saved: bool = False,
    count: Callable[[], int] = int,
) -> tuple[list[Call], Any]:
    """Run the model once; return its module calls in the order of their starts, and its output.

    With `saved`, count the tensors that autograd saves. Each tensor counts once, for the first call
    that saves it. The model's own parameters and buffers do not count. `count` is read at the start
    and end of each call.
    """
    calls: list[Call] = []
    running: list[Call] = []
    probe = torch.zeros((), requires_grad=True)

    def enter(_: nn.Module, args: Any, kwargs: Any, *, name: str) -> None:
        if running:
            running[-1].leaf = False
        calls.append(Call(name, _next_number(probe), read=_shape((args, kwargs)), begun=count()))
        running.append(calls[-1])

    def leave(_module: nn.Module, _args: Any, output: Any) -> None:
        call = running.pop()
        call.end = _next_number(probe)
        call.activation_bytes = byte_size(output)
        call.made, call.ended = _shape(output), count()

    first_for: dict[tuple[int, int], Call] = {}

    def pack(tensor: Tensor) -> Tensor:
        if calls:
            first_for.setdefault(_place(tensor), calls[-1])
        return tensor

    with ExitStack() as hooks:
        if saved:
            hooks.enter_context(saved_tensors_hooks(pack, lambda tensor: tensor))
        for name, module in observed_modules(model):
            entered = partial(enter, name=name)
            before = module.register_forward_pre_hook(entered, prepend=True, with_kwargs=True)
            hooks.callback(before.remove)
            hooks.callback(module.register_forward_hook(leave, always_call=True).remove)
        with errors_of("forward"):
            output = model(*inputs)
    # After the run: lazy parameters get their memory in the first run.
    own = {_place(tensor) for tensor in chain(model.parameters(), model.buffers())}
    for place, call in first_for.items():
        if place not in own:
            call.kept_bytes += place[1]
    return calls, output


def _shape(value: Any) -> tuple[int, ...] | None:
    """Return the shape of the first tensor in a value."""
    first = next(tensors_in(value), None)
    return None if first is None else tuple(first.shape)


def _place(tensor: Tensor) -> tuple[int, int]:
    """Return the address of a tensor's memory and its size (bytes)."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def parameter_layers(model: nn.Module, calls: Sequence[Call]) -> Mapping[nn.Parameter, int]:
    """Return the layer of each parameter: the first layer in the first call of its module.

    If the module is never called, its nearest enclosing module that is called counts. For tied
    weights the first layer counts.
    """
    first_layer: dict[str, int] = {}
    layers = 0
    for call in calls:
        first_layer.setdefault(call.module, layers)
        layers += call.leaf
    layers_of: dict[nn.Parameter, int] = {}
    for name, module in model.named_modules():
        called = name
        while called not in first_layer:
            called = called.rpartition(".")[0]
        for parameter in module.parameters(recurse=False):
            layers_of[parameter] = min(first_layer[called], layers_of.get(parameter, layers))
    return layers_of


# ---
# Autograd's nodes, in the order of computation.


def order_number(node: Node) -> int:
    """Return autograd's sequence number of a node; it grows in the order of computation."""
    return int(node._sequence_nr())


def _next_number(probe: Tensor) -> int:
    """Return an autograd order number between those of all earlier and all later nodes."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        node = probe.clone().grad_fn
    assert node is not None
    return order_number(node)


def nodes_behind(tensors: Iterable[Tensor]) -> list[Node]:
    """Return the nodes that computed `tensors`, in the order of computation.

    Nodes that accumulate gradients into parameters compute nothing and are left out.
    """
    nodes: dict[Node, None] = {}
    waiting = [tensor.grad_fn for tensor in tensors]
    while waiting:
        node = waiting.pop()
        if node is None or node in nodes or type(node).__name__ == "AccumulateGrad":
            continue
        nodes[node] = None
        waiting.extend(producer for producer, _ in node.next_functions)
    return sorted(nodes, key=order_number)
