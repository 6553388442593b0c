"""Observe the structure of a model in one untimed run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node, saved_tensors_hooks

from planner.model.errors import MeasurementError
from planner.profiling.calls import Call, layer_names, trace
from planner.profiling.dataflow import (
    Flow,
    Operation,
    Stretches,
    flow,
    operations,
    updating_ops,
)
from planner.profiling.graph import blocks_of_spans, nodes_behind, order_number
from planner.profiling.ownership import parameter_layers
from planner.profiling.samples import loss_of, tensors_in


@dataclass(frozen=True, slots=True)
class Structure:
    """The invariants of every run of the model.

    Lists over layers are in the order of computation, lists over ops and nodes in the order of the
    forward pass, the loss included. Each layer call is an op, and so is each computation between
    two.
    """

    names: tuple[str, ...]
    activation_bytes: tuple[int, ...]
    kept_bytes: tuple[int, ...]  # autograd's saved tensors, from each layer up to the next one
    blocks: tuple[int, ...]
    parameters: Mapping[nn.Parameter, int]  # the layer of each
    ops: tuple[Operation, ...]
    updaters: Mapping[nn.Parameter, tuple[int, ...]]  # ops that compute each gradient
    accumulators: Mapping[nn.Parameter, int]  # op charged for adding each gradient; of its layer
    marks: tuple[tuple[str, int], ...]  # starts and ends of calls: module, op charged from there on
    node_names: tuple[str, ...]  # autograd nodes of the backward pass
    node_ops: tuple[int, ...]  # the op of each node

    def by_layer(self, times: Sequence[int]) -> list[int]:
        """Return the sums of op times over each layer (ns)."""
        sums = [0] * len(self.names)
        for op, time in zip(self.ops, times, strict=True):
            sums[op.layer] += time
        return sums


def observe(model: nn.Module, inputs: tuple[Any, ...]) -> Structure:
    """Run the model forward once and return its structure.

    Computation between two layers is charged to the earlier one, computation before the first layer
    to the first, and the loss to the last.
    """
    calls, output = trace(model, inputs, saved=True)
    leaves = [call for call in calls if call.leaf]
    nodes = nodes_behind([loss_of(output)])
    names = layer_names(leaves, model)
    stretches = Stretches(calls)
    run = flow(nodes, calls)
    tracked = _with_everything_tracked(model, inputs, calls)
    if tracked is None:
        blocks, everything = _blocks(leaves, nodes_behind(tensors_in(output))), run
    else:
        blocks, everything = tracked
    ops, owners = operations(stretches, names, run, everything)
    parameters = parameter_layers(model, calls)
    updaters = updating_ops(parameters, run, owners)
    return Structure(
        names=tuple(names),
        activation_bytes=tuple(leaf.activation_bytes for leaf in leaves),
        kept_bytes=tuple(_kept(calls)),
        blocks=tuple(blocks),
        parameters=parameters,
        ops=ops,
        updaters=updaters,
        accumulators={
            parameter: next(
                (op for op in updaters[parameter] if ops[op].layer == layer),
                owners[2 * layer + 1],
            )
            for parameter, layer in parameters.items()
        },
        marks=_marks(calls, stretches, owners),
        node_names=tuple(node.name() for node in nodes),
        node_ops=tuple(owners[max(stretches.at(order_number(node)), 0)] for node in nodes),
    )


def _kept(calls: Sequence[Call]) -> list[int]:
    """Return the saved bytes of each leaf call; enclosing calls are charged as their times are."""
    kept, before = [], 0
    for call in calls:
        if call.leaf:
            kept.append(before + call.kept_bytes)
            before = 0
        elif kept:
            kept[-1] += call.kept_bytes
        else:
            before += call.kept_bytes
    return kept


def _marks(
    calls: Sequence[Call], stretches: Stretches, owners: Sequence[int]
) -> tuple[tuple[str, int], ...]:
    timed = {call.module for call in calls if call.leaf}
    moments = sorted(
        (number, call.module)
        for call in calls
        if call.module in timed
        for number in (call.first, call.end)
    )
    return tuple((module, owners[stretches.at(number)]) for number, module in moments)


def _blocks(leaves: Sequence[Call], nodes: Sequence[Node]) -> list[int]:
    return blocks_of_spans(nodes, [(leaf.first, leaf.end) for leaf in leaves])


def _with_everything_tracked(
    model: nn.Module, inputs: tuple[Any, ...], calls: Sequence[Call]
) -> tuple[list[int], Flow] | None:
    """Return the blocks and the flow of all layers, frozen ones included; None if that fails.

    Autograd records nothing that depends on no trainable parameter, such as branches of a frozen
    backbone. So this is one more run in which everything requires gradients. It fails if the model
    computes something else in that run; then only the trained part is known, and each layer before
    it is a block of its own.
    """
    try:
        with _everything_tracked(model, inputs) as tracked:
            again, output = trace(model, tracked)
            nodes = nodes_behind(tensors_in(output))
    except (MeasurementError, RuntimeError):
        return None
    if [(call.module, call.leaf) for call in again] != [(call.module, call.leaf) for call in calls]:
        return None
    return _blocks([call for call in again if call.leaf], nodes), flow(nodes, again)


@contextmanager
def _everything_tracked(model: nn.Module, inputs: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Let all parameters and the first input require gradients; yield the inputs to use.

    Further inputs stay unchanged: a mask that every layer reads is no branch of the model. No
    tensor is saved for a backward pass, for which a large frozen model may lack the memory.
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
    """Return a copy of a tensor that requires gradients and may be changed in place."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().requires_grad_().clone()
    return value
