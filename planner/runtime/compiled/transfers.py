"""Puts the transfers of a plan into a backward graph.

Problem. A batch shall leave as soon as its last gradient is complete and the batches before it have
left, while the graph goes on.

Method. Behind the operation that completes a batch stand its pieces, each divided by the number of
ranks, and torch's functional collective: `all_reduce`, or `all_reduce_coalesced` of several pieces,
which gloo and NCCL send as one message. A batch of several parts in flight is laid end to end and
cut. What arrives leaves the graph beside its outputs; with a barrier it is waited for at the end of
the graph, else by whoever needs it.

Guarantee. Collectives stand in the graph in the plan's order, so all ranks begin them alike. The
means are those that DDP computes: each gradient times one over the number of ranks, then summed up.

Complexity. O(nodes + pieces).

Source. Own; the collectives are torch's (`torch.distributed._functional_collectives`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import getitem
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node

from planner.programs import Batch
from planner.runtime.model.parameters import Elements, elements_of

__all__ = ["Layout", "arriving", "insert_transfers", "layout_of", "means_in"]

_c10d: Any = torch.ops._c10d_functional
_aten: Any = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Layout:
    """What one batch sends, and where its pieces lie in what arrives.

    Attributes
    ----------
    pieces : tuple of (str, Elements)
        Elements of parameters, by type of number; those of one type are sent together.
    depth : int
        Parts in flight at once.
    """

    pieces: tuple[tuple[tuple[str, Elements], ...], ...]
    depth: int


def layout_of(batch: Batch, parameters: Mapping[str, nn.Parameter]) -> Layout:
    """Return what a batch sends."""
    kinds: dict[torch.dtype, list[tuple[str, Elements]]] = {}
    for piece in batch.pieces:
        elements = elements_of(piece, parameters)
        kinds.setdefault(elements.parameter.dtype, []).append((piece.parameter, elements))
    return Layout(tuple(map(tuple, kinds.values())), batch.depth)


class _Inserting:
    """Adds nodes behind one of a graph, each with the value that tracing would have noted."""

    def __init__(self, graph: Graph, behind: Node) -> None:
        self._graph = graph
        self._last = behind

    def __call__(self, target: Any, *args: Any) -> Node:
        with self._graph.inserting_after(self._last):
            node = self._graph.call_function(target, args)
        value = torch.fx.node.map_arg(args, lambda read: read.meta["val"])
        node.meta["val"] = target(*value)
        self._last = node
        return node


def insert_transfers(
    graph: Graph,
    gradients: Mapping[str, Node],
    layouts: Sequence[Layout],
    group: str,
    ranks: int,
    *,
    wait: bool,
) -> None:
    """Put transfers into a backward graph; what arrives stands behind its outputs.

    Parameters
    ----------
    graph : Graph
        The graph, in its final order.
    gradients : mapping of str to Node
        The node that is each parameter's gradient.
    layouts : sequence of Layout
        What each batch sends, in transfer order.
    group : str
        Name of the process group.
    ranks : int
        Its ranks.
    wait : bool
        Whether all are waited for at the end of the graph.
    """
    nodes = list(graph.nodes)
    place = {node: number for number, node in enumerate(nodes)}
    (output,) = graph.find_nodes(op="output")
    outputs: Any = output.args[0]
    before = max((place[node] for node in graph.find_nodes(op="placeholder")), default=0)
    inserting = _Inserting(graph, nodes[before])
    sent: list[Node] = []
    for layout in layouts:
        last = max(place[gradients[name]] for pieces in layout.pieces for name, _ in pieces)
        if last > before:
            before = last
            inserting = _Inserting(graph, nodes[last])
        for pieces in layout.pieces:
            sent += _sent(inserting, pieces, layout.depth, gradients, group, ranks)
    if wait:
        inserting = _Inserting(graph, output.prev)
        sent = [inserting(_c10d.wait_tensor.default, node) for node in sent]
    output.args = ((*outputs, *sent),)
    graph.lint()


def _sent(
    insert: _Inserting,
    pieces: Sequence[tuple[str, Elements]],
    depth: int,
    gradients: Mapping[str, Node],
    group: str,
    ranks: int,
) -> list[Node]:
    """Insert the transfers of pieces of one type; return what arrives."""
    parts = []
    for name, elements in pieces:
        part = gradients[name]
        if len(elements) < elements.parameter.numel() or depth > 1:
            part = insert(_aten.reshape.default, part, [-1])
            part = insert(_aten.slice.Tensor, part, 0, *elements.span)
        parts.append(insert(_aten.mul.Tensor, part, 1 / ranks))
    if depth > 1:
        flat = insert(_aten.cat.default, parts) if len(parts) > 1 else parts[0]
        parts = [
            insert(_aten.slice.Tensor, flat, 0, start, stop)
            for start, stop in _chunks(sum(len(elements) for _, elements in pieces), depth)
        ]
        return [insert(_c10d.all_reduce.default, part, "sum", group) for part in parts]
    if len(parts) == 1:
        return [insert(_c10d.all_reduce.default, parts[0], "sum", group)]
    several = insert(_c10d.all_reduce_coalesced.default, parts, "sum", group)
    return [insert(getitem, several, number) for number in range(len(parts))]


def _chunks(size: int, depth: int) -> list[tuple[int, int]]:
    count = min(depth, size)
    bounds = [size * number // count for number in range(count + 1)]
    return list(pairwise(bounds))


def arriving(layout: Layout) -> int:
    """Return how many tensors arrive of a batch."""
    if layout.depth == 1:
        return sum(map(len, layout.pieces))
    sizes = [sum(len(elements) for _, elements in pieces) for pieces in layout.pieces]
    return sum(len(_chunks(size, layout.depth)) for size in sizes)


def means_in(layout: Layout, arrived: Sequence[Tensor]) -> list[tuple[str, Elements, Tensor]]:
    """Return the pieces of gradients in what arrived of a batch."""
    placed, left = [], list(arrived)
    for pieces in layout.pieces:
        if layout.depth == 1:
            parts, left = left[: len(pieces)], left[len(pieces) :]
        else:
            sizes = [len(elements) for _, elements in pieces]
            chunks = len(_chunks(sum(sizes), layout.depth))
            flat, left = torch.cat(left[:chunks]), left[chunks:]
            parts = list(flat.split(sizes))
        placed += [(*piece, part) for piece, part in zip(pieces, parts, strict=True)]
    return placed
