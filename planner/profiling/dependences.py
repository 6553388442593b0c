"""What each node of a compiled graph has to wait for.

Problem. A node may run before another one although it stands behind it, unless it needs something
of it: a value, but also that a tensor was changed, or not yet, or a draw of random numbers.

Method. One pass over the nodes in their order. Of each storage the last node that wrote it and the
readers since are known; nodes that draw random numbers form a chain, as do collectives; whatever
else has effects, or cannot be looked into, stays where it is between all others.

Guarantee. Every order that keeps to these dependences computes what the graph computes, with the
same draws. Two nodes that only read have none between them.

Complexity. O(nodes + edges), and O(nodes) for each node that stays where it is.

Source. Bernstein's conditions; own.
"""

from collections.abc import Iterator, Mapping
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

__all__ = ["dependences", "operations"]

COLLECTIVES = ("_c10d_functional", "_c10d_functional_autograd", "c10d", "_dtensor")

PURE = ("flex_attention", "flex_attention_backward", "triton_kernel_wrapper_functional")
"""Operators with kernels or graphs in them that compute, and nothing else."""

ASSERTS = ("aten::_assert_scalar", "aten::_assert_async")
"""Operators that must not be left out, and may run whenever what they read is there."""


def operations(graph: Graph) -> list[Node]:
    """Return the nodes that compute, in their order."""
    return [node for node in graph.nodes if node.op.startswith("call_")]


def dependences(graph: Graph, *, keep_collectives: bool = True) -> dict[Node, tuple[Node, ...]]:
    """Return for each node that computes the earlier ones it has to wait for.

    Parameters
    ----------
    graph : Graph
        With a value in each node's ``meta["val"]``, as tracing leaves it.
    keep_collectives : bool
        Whether collectives keep their order; if not, all ranks have to change it alike.
    """
    needed: dict[Node, tuple[Node, ...]] = {}
    written: dict[int, Node] = {}
    reading: dict[int, list[Node]] = {}
    last: dict[str, Node] = {}  # of each kind of node that keeps its order
    since: list[Node] = []  # the last one that everything waits for
    for node in operations(graph):
        before = dict.fromkeys(read for read in node.all_input_nodes if read in needed)
        kinds = _kinds(node)
        if not keep_collectives:
            kinds.discard("collective")
        writes = _written(node)
        for kind in kinds & last.keys():
            before[last[kind]] = None
        last.update(dict.fromkeys(kinds, node))
        reads = {storage for read in node.all_input_nodes for storage in _storages(read)}
        for storage in reads:
            if storage in written:
                before[written[storage]] = None
        for storage in writes:
            before.update(dict.fromkeys(reading.pop(storage, ())))
            written[storage] = node
        for storage in reads - writes:
            reading.setdefault(storage, []).append(node)
        if "fixed" in kinds:
            before.update(dict.fromkeys(since))
            since = []
        elif "fixed" in last:
            before[last["fixed"]] = None
        since.append(node)
        before.pop(node, None)
        needed[node] = tuple(before)
    return needed


def _kinds(node: Node) -> set[str]:
    """Return why a node keeps its order among others of a kind; "fixed": among all."""
    target = node.target
    if target is getitem or getattr(target, "_name", "") in PURE:
        return set()
    if not isinstance(target, torch._ops.OpOverload):
        return {"fixed"}  # a call that nothing is known of, or of a graph in the graph
    kinds = set()
    if torch.Tag.nondeterministic_seeded in target.tags:
        kinds.add("random")
    if target.namespace in COLLECTIVES:  # a wait needs what it waits for, and nothing else
        return kinds if "wait_tensor" in target.name() else {*kinds, "collective"}
    mutable = target._schema.is_mutable
    if mutable and any(not _storages(read) for read in _written_nodes(node)):
        kinds.add("fixed")  # it writes who knows where
    asserts = target.name().partition(".")[0] in ASSERTS
    if not mutable and not kinds and not asserts and node.is_impure():
        kinds.add("fixed")
    return kinds


def _written(node: Node) -> set[int]:
    return {storage for read in _written_nodes(node) for storage in _storages(read)}


def _written_nodes(node: Node) -> Iterator[Node]:
    """Yield the nodes whose tensors a node changes in place."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return
    names = [entry.name for entry in node.target._schema.arguments]
    arguments: Mapping[str, Any] = {
        **dict(zip(names, node.args, strict=False)),
        **node.kwargs,
    }
    for entry in node.target._schema.arguments:
        if entry.alias_info is not None and entry.alias_info.is_write:
            value = arguments.get(entry.name)
            for written in value if isinstance(value, list | tuple) else (value,):
                if isinstance(written, Node):
                    yield written


def _storages(node: Node) -> set[int]:
    """Return what a node's tensors lie in; views of one tensor share it."""
    value = node.meta.get("val")
    tensors = value if isinstance(value, list | tuple) else (value,)
    return {
        tensor.untyped_storage()._cdata
        for tensor in tensors
        if isinstance(tensor, Tensor) and tensor.layout is torch.strided
    }
