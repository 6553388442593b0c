"""Build the dataflow graph of a model: one op per layer call and per computation between two calls.

Autograd does not record every dependence, so two rules add order. An op without recorded inputs
follows the previous op, unless it is known to read the model's input. An op without any record
(dropout in evaluation mode, integers) also precedes the next op. The graph may therefore be
stricter than the model, never less strict than the recorded dependences.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from torch import Tensor, nn
from torch.autograd.graph import Node

from planner.model.layers import unique_names
from planner.profiling.calls import Call
from planner.profiling.graph import order_number

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

    @property
    def loss(self) -> int:
        """The segment of the loss."""
        return 2 * self.layers + 1

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
    sources: set[int] = field(default_factory=set)  # segments that read the model's input
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
                    if edge[0] < 0:
                        result.sources.add(edge[1])
                    elif edge[0] < edge[1]:
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
    stretches: Stretches, layer_names: Sequence[str], run: Flow, everything: Flow
) -> tuple[tuple[Operation, ...], list[int]]:
    """Return the ops in execution order, and for each segment the op that is charged for it.

    `everything` is the flow recorded with frozen parts tracked too; pass `run` again if it is
    unknown. A segment that is no op is charged to the preceding op, or to the first.
    """
    recorded = {**everything.names, **run.names}
    names = {2 * layer + 1: name for layer, name in enumerate(layer_names)}
    names |= {stretch: name for stretch, name in recorded.items() if stretch not in names}
    names[stretches.loss] = "loss"
    names = dict(zip(names, unique_names(names.values()), strict=True))
    present = sorted(names)
    owners = [max(bisect_right(present, at) - 1, 0) for at in range(stretches.loss + 1)]

    sources = run.sources | everything.sources
    reads: list[set[int]] = [set() for _ in present]
    gradient_from: list[set[int]] = [set() for _ in present]
    for read, reading in run.edges | everything.edges:
        reads[owners[reading]].add(owners[read])
    for read, reading in run.edges:
        gradient_from[owners[read]].add(owners[reading])
    for op, stretch in enumerate(present[1:], start=1):
        unknown = not reads[op] and stretch not in sources
        if unknown or present[op - 1] not in recorded:
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


def updating_ops(
    layers: Mapping[nn.Parameter, int], run: Flow, owners: Sequence[int]
) -> dict[nn.Parameter, tuple[int, ...]]:
    """Return the ops that compute each parameter's gradient, in the order of the forward pass.

    Where autograd has no record (a recomputed layer, a parameter without a gradient), it is the op
    of the parameter's layer.
    """
    return {
        parameter: tuple(sorted({owners[at] for at in run.updates.get(parameter, {2 * layer + 1})}))
        for parameter, layer in layers.items()
    }
