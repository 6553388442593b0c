"""Dependence analysis of a compiled graph (torch.fx).

Problem: Find which nodes must stay in order: because of a value, a write to the same storage, or
random numbers.
Method: One pass over the nodes. Each storage remembers its last writer and the readers since then.
Random draws form a chain, and so do collectives. Nodes with other effects stay in place.
Guarantee: Every order that respects the dependences computes the same results with the same random
draws. Two nodes that only read are independent.
Complexity: O(nodes + edges), and O(nodes) for each node that stays in place.
Source: Bernstein's conditions; own.
"""

from collections.abc import Iterator, Mapping
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

COLLECTIVES = ("_c10d_functional", "_c10d_functional_autograd", "c10d", "_dtensor")

PURE = ("flex_attention", "flex_attention_backward", "triton_kernel_wrapper_functional")
"""Operators that contain kernels or graphs but have no side effects."""

ASSERTS = ("aten::_assert_scalar", "aten::_assert_async")
"""Assertions: they must not be dropped, but may run as soon as their inputs exist."""


def operations(graph: Graph) -> list[Node]:
    """Return the nodes that compute, in their order."""
    return [node for node in graph.nodes if node.op.startswith("call_")]


def dependences(graph: Graph, *, keep_collectives: bool = True) -> dict[Node, tuple[Node, ...]]:
    """Return for each node that computes the earlier nodes it depends on.

    Each node's ``meta["val"]`` must hold its value, as tracing leaves it. Without
    `keep_collectives` collectives may change their order; all ranks must then do so alike.
    """
    needed: dict[Node, tuple[Node, ...]] = {}
    written: dict[int, Node] = {}
    reading: dict[int, list[Node]] = {}
    last: dict[str, Node] = {}  # the last node of each kind that keeps its order
    since: list[Node] = []  # all nodes since the last fixed one
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
    """Return the kinds of nodes with which a node keeps its order; "fixed": with all."""
    target = node.target
    if target is getitem or getattr(target, "_name", "") in PURE:
        return set()
    if not isinstance(target, torch._ops.OpOverload):
        return {"fixed"}  # an unknown call, or a nested graph
    kinds = set()
    if torch.Tag.nondeterministic_seeded in target.tags:
        kinds.add("random")
    if target.namespace in COLLECTIVES:  # a wait depends on its collective alone
        return kinds if "wait_tensor" in target.name() else {*kinds, "collective"}
    mutable = target._schema.is_mutable
    if mutable and any(not _storages(read) for read in _written_nodes(node)):
        kinds.add("fixed")  # the written storage is unknown
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
    """Return the storages of a node's tensors; views of one tensor share a storage."""
    value = node.meta.get("val")
    tensors = value if isinstance(value, list | tuple) else (value,)
    return {
        tensor.untyped_storage()._cdata
        for tensor in tensors
        if isinstance(tensor, Tensor) and tensor.layout is torch.strided
    }
