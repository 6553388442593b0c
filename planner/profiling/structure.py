"""What a model computes, found by running it once untimed."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node, saved_tensors_hooks

from planner.errors import MeasurementError
from planner.profiling.calls import Call, layer_names, trace
from planner.profiling.graph import blocks_of_spans, nodes_behind, order_number
from planner.profiling.ownership import parameter_layers
from planner.profiling.tensors import loss_of, tensors_in

__all__ = ["Structure", "observe"]


@dataclass(frozen=True, slots=True)
class Structure:
    """What every run of the model does.

    Attributes
    ----------
    names : tuple of str
        Name of each layer, in the order of computation.
    activation_bytes : tuple of int
        Size of each layer's output.
    blocks : tuple of int
        Block of each layer.
    parameters : mapping of Parameter to int
        Layer of each parameter.
    entered : tuple of (str, bool)
        Calls of the modules that are a layer in some call, and whether this call is one.
    node_names : tuple of str
        What the backward pass computes, in the order of the forward pass, loss included.
    node_layers : tuple of int
        Layer of each of them.
    """

    names: tuple[str, ...]
    activation_bytes: tuple[int, ...]
    blocks: tuple[int, ...]
    parameters: dict[nn.Parameter, int]
    entered: tuple[tuple[str, bool], ...]
    node_names: tuple[str, ...]
    node_layers: tuple[int, ...]


def observe(model: nn.Module, inputs: tuple[Any, ...]) -> Structure:
    """Run the model forward and return what it computes.

    What is computed between two layers belongs to the earlier one, what comes before the first
    layer to the first, the loss to the last.
    """
    calls, output = trace(model, inputs)
    leaves = [call for call in calls if call.leaf]
    starts = [leaf.first for leaf in leaves]
    nodes = nodes_behind([loss_of(output)])
    timed = {leaf.module for leaf in leaves}
    blocks = _blocks_with_everything_tracked(model, inputs, calls)
    if blocks is None:
        blocks = _blocks(leaves, nodes_behind(tensors_in(output)))
    return Structure(
        names=tuple(layer_names(leaves, model)),
        activation_bytes=tuple(leaf.activation_bytes for leaf in leaves),
        blocks=tuple(blocks),
        parameters=parameter_layers(model, calls),
        entered=tuple((call.module, call.leaf) for call in calls if call.module in timed),
        node_names=tuple(node.name() for node in nodes),
        node_layers=tuple(max(bisect_right(starts, order_number(node)) - 1, 0) for node in nodes),
    )


def _blocks(leaves: Sequence[Call], nodes: Sequence[Node]) -> list[int]:
    return blocks_of_spans(nodes, [(leaf.first, leaf.end) for leaf in leaves])


def _blocks_with_everything_tracked(
    model: nn.Module, inputs: tuple[Any, ...], calls: Sequence[Call]
) -> list[int] | None:
    """Return the layers' blocks, frozen layers included.

    Autograd does not record what depends on no trainable parameter, such as the branches of a
    frozen backbone, so everything is made to require gradients for one more run.

    Returns
    -------
    list of int or None
        None if the model does something else then, or fails: all that is known then are the
        blocks of what is trained, and every layer before counts as a block of its own.
    """
    try:
        with _everything_tracked(model, inputs) as tracked:
            again, output = trace(model, tracked)
            nodes = nodes_behind(tensors_in(output))
    except (MeasurementError, RuntimeError):
        return None
    if [(call.module, call.leaf) for call in again] != [(call.module, call.leaf) for call in calls]:
        return None
    return _blocks([call for call in again if call.leaf], nodes)


@contextmanager
def _everything_tracked(model: nn.Module, inputs: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Let all parameters and the first input require gradients; yield the inputs to use.

    Further inputs stay as they are: a mask that every layer reads is no branch of the model.
    No tensor is kept for a backward pass, which a large frozen model may have no memory for.
    """
    frozen = [
        parameter
        for parameter in model.parameters()
        if parameter.is_floating_point() and not parameter.requires_grad
    ]
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        with saved_tensors_hooks(lambda _tensor: None, lambda _nothing: torch.empty(0)):
            yield (*map(_tracked, inputs[:1]), *inputs[1:])
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def _tracked(value: Any) -> Any:
    """Return a tracked copy of a tensor; a copy may also be changed in place."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().requires_grad_().clone()
    return value
