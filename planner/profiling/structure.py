"""Observe the structure of a model in one untimed run: its layers and its dataflow graph.

An op is a layer call, or the computation between two calls. Autograd does not record every
dependence, so two rules add order. An op without recorded inputs, such as one that reads the
model's input or frozen layers, follows the previous op. An op without any record (a frozen layer,
dropout in evaluation mode, integers) also precedes the next op. The graph may therefore be stricter
than the model, never less strict than the recorded dependences.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import Node

from planner.model.layers import chain_blocks, unique_names
from planner.profiling.calls import (
    Call,
    nodes_behind,
    order_number,
    parameter_layers,
    trace,
)
from planner.profiling.samples import loss_of, tensors_in

_SHOWN_NODES = 3
"""Node kinds in the name of an op; further kinds are abbreviated."""


class Stretches:
    """The segments (stretches) of one run, delimited by autograd order numbers.

    Segment 0 precedes the first layer, segment 1 is the first layer, 2 follows it, 3 is the second
    layer, and so on. The last segment is the loss; -1 precedes the run.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        leaves = [call for call in calls if call.leaf]
        self.layers = len(leaves)
        self._bounds = [calls[0].first]
        for leaf in leaves:
            self._bounds += [leaf.first, leaf.end]
        self._bounds.append(calls[0].end + 1)
        self.loss = 2 * self.layers + 1
        """The segment of the loss."""

    def at(self, number: int) -> int:
        """Return the segment of an order number."""
        return bisect_right(self._bounds, number) - 1

    def layer(self, stretch: int) -> int:
        """Return the layer that is charged for a segment: the preceding one, or the first."""
        return min(max((stretch - 1) // 2, 0), self.layers - 1)


@dataclass(slots=True)
class Flow:
    """The autograd records of one run, by segment (see `Stretches`)."""

    names: dict[int, str] = field(default_factory=dict)
    edges: set[tuple[int, int]] = field(default_factory=set)  # (producer, reader)
    updates: dict[Tensor, set[int]] = field(default_factory=dict)  # leaf: its gradient's segments


def flow(nodes: Iterable[Node], calls: Sequence[Call]) -> Flow:
    """Return the dataflow between segments; `nodes` are in the order of computation."""
    stretches = Stretches(calls)
    result = Flow()
    for stretch, group in groupby(nodes, key=lambda node: stretches.at(order_number(node))):
        if stretch < 0:
            continue
        made = list(group)
        result.names[stretch] = _described(made, calls)
        for node in made:
            for producer, _ in node.next_functions:
                if producer is None:
                    continue
                if type(producer).__name__ == "AccumulateGrad":
                    leaf: Tensor = producer.variable  # type: ignore[attr-defined]
                    result.updates.setdefault(leaf, set()).add(stretch)
                else:
                    read = stretches.at(order_number(producer))
                    # Autograd numbers a view after its reader if the view's base has changed in
                    # between, so the earlier segment is taken as the producer.
                    edge = min(read, stretch), max(read, stretch)
                    if 0 <= edge[0] < edge[1]:
                        result.edges.add(edge)
    return result


def _described(nodes: Sequence[Node], calls: Sequence[Call]) -> str:
    """Return a name for nodes, such as ``block:add+relu``, with the module of the first one."""
    number = order_number(nodes[0])
    module = next(
        (call.module for call in reversed(calls) if call.first < number < call.end),
        "",  # the loss
    )
    kinds = list(dict.fromkeys(re.sub(r"Backward\d*$", "", node.name()).lower() for node in nodes))
    what = "+".join(kinds[:_SHOWN_NODES] + ["..."] * (len(kinds) > _SHOWN_NODES))
    return f"{module}:{what}" if module else what


@dataclass(frozen=True, slots=True)
class Operation:
    """One op of the forward pass, and of the backward pass if it has one."""

    name: str
    layer: int  # the layer that is charged for its time
    reads: tuple[int, ...]  # earlier ops whose results it needs
    gradient_from: tuple[int, ...]  # later ops whose backward passes produce its gradient, if known


def operations(
    stretches: Stretches, layer_names: Sequence[str], run: Flow
) -> tuple[tuple[Operation, ...], list[int]]:
    """Return the ops in execution order, and for each segment the op that is charged for it.

    A segment that is no op is charged to the preceding op, or to the first.
    """
    names = {2 * layer + 1: name for layer, name in enumerate(layer_names)}
    names |= {stretch: name for stretch, name in run.names.items() if stretch not in names}
    names[stretches.loss] = "loss"
    names = dict(zip(names, unique_names(names.values()), strict=True))
    present = sorted(names)
    owners = [max(bisect_right(present, at) - 1, 0) for at in range(stretches.loss + 1)]

    reads: list[set[int]] = [set() for _ in present]
    gradient_from: list[set[int]] = [set() for _ in present]
    for read, reading in run.edges:
        reads[owners[reading]].add(owners[read])
        gradient_from[owners[read]].add(owners[reading])
    for op in range(1, len(present)):
        if not reads[op] or present[op - 1] not in run.names:
            reads[op].add(op - 1)
    return tuple(
        Operation(
            names[stretch],
            stretches.layer(stretch),
            tuple(sorted(reads[op])),
            tuple(sorted(gradient_from[op])),
        )
        for op, stretch in enumerate(present)
    ), owners


# ---
# The run that is observed.


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
    names = unique_names(leaf.module or type(model).__name__ for leaf in leaves)
    stretches = Stretches(calls)
    run = flow(nodes, calls)
    ops, owners = operations(stretches, names, run)
    parameters = parameter_layers(model, calls)
    # Where autograd has no record (a recomputed layer, a parameter without a gradient), the op of
    # the parameter's layer counts as the one that computes its gradient.
    updaters = {
        parameter: tuple(sorted({owners[at] for at in run.updates.get(parameter, {2 * layer + 1})}))
        for parameter, layer in parameters.items()
    }
    return Structure(
        names=tuple(names),
        activation_bytes=tuple(leaf.activation_bytes for leaf in leaves),
        kept_bytes=tuple(_kept(calls)),
        blocks=tuple(_blocks(calls, tensors_in(output))),
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
    """Return the saved bytes of each leaf call, with those of enclosing calls next to it."""
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


def _blocks(calls: Sequence[Call], tensors: Iterable[Tensor]) -> list[int]:
    """Return the block of each layer, non-decreasing from 0.

    `tensors` are what the model computed. A new block begins where the computation is a single
    chain at some point between two layers. A layer without nodes, such as a frozen one that reads
    frozen ones, is placed between its neighbours.
    """
    nodes = nodes_behind(tensors)
    position = {node: index for index, node in enumerate(nodes)}
    edges = [
        # Autograd numbers a view after its reader if the view's base has changed in between.
        (min(position[producer], index), max(position[producer], index))
        for node, index in position.items()
        for producer, _ in node.next_functions
        if producer in position
    ]
    node_blocks = chain_blocks(len(nodes), edges)
    numbers = [order_number(node) for node in nodes]
    blocks: list[int] = []
    block, before = 0, -1
    for leaf in (call for call in calls if call.leaf):
        start = bisect_left(numbers, leaf.first)
        # Compare the last node of the previous layer with the first node at or after this one.
        inside = 0 <= before < len(nodes) and start < len(nodes)
        if blocks and (not inside or node_blocks[before] != node_blocks[start]):
            block += 1
        blocks.append(block)
        before = bisect_left(numbers, leaf.end) - 1
    return blocks
