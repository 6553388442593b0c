"""Describe a compiled graph (torch.fx) with functional collectives as a document to plan from.

The document lists the nodes with their inputs, times and allocations, the collectives with group
and bytes, and the waits. The caller supplies the times, measured or from a model.
Complexity: O(nodes + arguments).
"""

from collections.abc import Callable, Iterator, Sequence
from operator import getitem
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from planner.profiling.samples import byte_size, tensors_in

DOCUMENT_VERSION = 1

MERGEABLE = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce")
"""Collectives that can be merged into one, as Inductor's bucketing does."""

_NO_TRANSFERS = ("", "wait_tensor")

_SAMPLES = tuple(1 << power for power in range(10, 33, 2))
"""Sizes (bytes) at which the time of each kind of collective is sampled."""


def fx_document(
    graph: Graph,
    *,
    node_ns: Callable[[Node], float],
    collective_ns: Callable[[Node, int], float],
    copy_gbps: float = 0.0,
    samples: Sequence[int] = _SAMPLES,
) -> dict[str, Any]:
    """Return the planning document of a graph, such as one given to a compiler backend.

    It is plain values, the input of ``planner import fx``. The nodes hold fake or real tensors in
    their ``meta["val"]``. `node_ns` returns the computation time of a node (ns). `collective_ns`
    returns the time of a node's collective for an input of the given bytes; it is sampled at the
    sizes `samples`, and times between them are interpolated. `copy_gbps` is the memory bandwidth
    (10^9 bytes/s) for packing and unpacking merged collectives; 0 makes copies free.

    Examples
    --------
    Write the forward graph of a compiled model from a backend::

        from torch._dynamo.backends.common import aot_autograd

        def keep(module, inputs):
            document = fx_document(module.graph, node_ns=node_ns, collective_ns=collective_ns)
            open("graph.fx.json", "w").write(json.dumps(document))
            return module

        torch.compile(model, backend=aot_autograd(fw_compiler=keep))(*inputs)
    """
    rows: list[dict[str, Any]] = []
    times: dict[str, list[list[int]]] = {}
    owners: dict[int, str] = {}
    needed = dependences(graph)
    storages: dict[str, set[int]] = {}
    same: dict[int, int] = {}
    for node in graph.nodes:
        name = collective_name(node)
        # The host's memory does not count if the model is on a device.
        made = _storages(node, host=not torch.cuda.is_available())
        mine = {same.get(key, key): size for key, size in made.items()}
        if name == "wait_tensor":
            # A wait returns its collective's output; fake tensors give it another storage.
            waited = [key for other in node.all_input_nodes for key in storages[other.name]]
            same.update(dict.fromkeys(mine, waited[0]) if waited else {})
            mine = dict.fromkeys(waited, 0)
        fresh = {key: size for key, size in mine.items() if key not in owners}
        owners.update(dict.fromkeys(fresh, node.name))
        storages[node.name] = set(mine)
        row: dict[str, Any] = {
            "name": node.name,
            "op": node.op,
            "inputs": [other.name for other in node.all_input_nodes],
            "storages": [key for key in mine if key not in fresh],
            "allocates": [[key, size] for key, size in fresh.items()],
        }
        if node.op == "placeholder":
            row["kept"] = node.name.startswith("primals")
        elif node.op not in {"get_attr", "output"}:
            row["target"] = str(node.target)
            extra = {other.name for other in needed[node]} - set(row["inputs"])
            if extra:
                row["after"] = sorted(extra)
            if name == "wait_tensor":
                # A collective started outside this graph counts as finished.
                if any(
                    collective_name(other) not in _NO_TRANSFERS for other in node.all_input_nodes
                ):
                    row["waits"] = True
                else:
                    row["duration_ns"] = 0
            elif name:
                row["collective"] = _collective(node, name, copy_gbps)
                key, _ = collective_key(node)
                if key not in times:
                    times[key] = [[size, round(collective_ns(node, size))] for size in samples]
            else:
                row["duration_ns"] = round(node_ns(node))
        rows.append(row)
    return {"fx": DOCUMENT_VERSION, "nodes": rows, "times": times}


def collective_name(node: Node) -> str:
    """Return the operator name of a functional collective or wait, else an empty string."""
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload):
        return ""
    if target.namespace not in {"_c10d_functional", "c10d_functional"}:
        return ""
    return str(target.name()).partition("::")[2].partition(".")[0]


def collective_key(node: Node) -> tuple[str, int]:
    """Return the key of a collective in `times` (kind and group), and its input size (bytes)."""
    row = _collective(node, collective_name(node), 0.0)
    return f"{row['kind']}@{row['group']}", row["size_bytes"]


def _collective(node: Node, name: str, copy_gbps: float) -> dict[str, Any]:
    arguments = _arguments(node)
    value: Any = node.all_input_nodes[0].meta.get("val")
    read, made = byte_size(value), byte_size(node.meta.get("val"))
    words = (
        name,
        str(value.dtype).removeprefix("torch."),
        str(arguments.get("reduce_op", "")),
    )
    mergeable = name in MERGEABLE
    gathers = name == MERGEABLE[0]
    return {
        "kind": " ".join(filter(None, words)),
        "group": str(arguments.get("group_name", "")),
        "size_bytes": read,
        "mergeable": mergeable,
        "pack_ns": _copy_ns(read, copy_gbps) if mergeable else 0,
        "unpack_ns": _copy_ns(made, copy_gbps) if gathers else 0,
        # Gathers are packed into the place of their output.
        "pack_bytes": read if mergeable and not gathers else 0,
        "unpack_bytes": made if gathers else 0,
    }


def _copy_ns(size: int, gbps: float) -> int:
    """Return the time (ns) to read and write the given bytes."""
    return round(2 * size / gbps) if gbps else 0


# ---
# Which nodes must stay in order: for a value, a write to the same storage, or random numbers.
#
# Method: One pass over the nodes. Each storage remembers its last writer, and the readers since.
# Random draws form a chain. Nodes with other effects stay in place.
# Guarantee: Every order that respects the dependences computes the same results with the same
# random draws. Two nodes that only read are independent.
# Complexity: O(nodes + edges), and O(nodes) for each node that stays in place.
# Source: Bernstein's conditions; own.

COLLECTIVES = ("_c10d_functional", "_c10d_functional_autograd", "c10d", "_dtensor")

PURE = ("flex_attention", "flex_attention_backward", "triton_kernel_wrapper_functional")
"""Operators that contain kernels or graphs but have no side effects."""

ASSERTS = ("aten::_assert_scalar", "aten::_assert_async")
"""Assertions: they must not be dropped, but may run as soon as their inputs exist."""


def operations(graph: Graph) -> list[Node]:
    """Return the nodes that compute, in their order."""
    return [node for node in graph.nodes if node.op.startswith("call_")]


def dependences(graph: Graph) -> dict[Node, tuple[Node, ...]]:
    """Return for each node that computes the earlier nodes it depends on.

    Each node's ``meta["val"]`` must hold its value, as tracing leaves it. Collectives may change
    their order; all ranks must do so alike.
    """
    needed: dict[Node, tuple[Node, ...]] = {}
    written: dict[int, Node] = {}
    reading: dict[int, list[Node]] = {}
    last: dict[str, Node] = {}  # the last node of each kind that keeps its order
    since: list[Node] = []  # all nodes since the last fixed one
    for node in operations(graph):
        before = dict.fromkeys(read for read in node.all_input_nodes if read in needed)
        kinds = _kinds(node)
        writes = {storage for read in _written(node) for storage in _storages(read)}
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
    if not isinstance(target, OpOverload):
        return {"fixed"}  # an unknown call, or a nested graph
    kinds = set()
    if torch.Tag.nondeterministic_seeded in target.tags:
        kinds.add("random")
    if target.namespace in COLLECTIVES:  # they are impure for torch, but depend on values alone
        return kinds
    mutable = target._schema.is_mutable
    if mutable and not all(map(_storages, _written(node))):
        kinds.add("fixed")  # the written storage is unknown
    asserts = target.name().partition(".")[0] in ASSERTS
    if not mutable and not kinds and not asserts and node.is_impure():
        kinds.add("fixed")
    return kinds


def _written(node: Node) -> Iterator[Node]:
    """Yield the nodes whose tensors a node changes in place."""
    if not isinstance(node.target, OpOverload) or not node.target._schema.is_mutable:
        return
    arguments = _arguments(node)
    for entry in node.target._schema.arguments:
        if entry.alias_info is not None and entry.alias_info.is_write:
            value = arguments.get(entry.name)
            for written in value if isinstance(value, list | tuple) else (value,):
                if isinstance(written, Node):
                    yield written


def _arguments(node: Node) -> dict[str, Any]:
    """Return a call's arguments by their names."""
    schema: Any = node.target._schema  # type: ignore[union-attr]
    names = [argument.name for argument in schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _storages(node: Node, *, host: bool = True) -> dict[int, int]:
    """Return the storages of a node's tensors with their sizes (bytes); views share a storage."""
    storages = (
        tensor.untyped_storage()
        for tensor in tensors_in(node.meta.get("val"))
        if tensor.layout is torch.strided and (host or tensor.device.type != "cpu")
    )
    # Their identity, which exists also for a storage without memory.
    return {storage._cdata: int(storage.nbytes()) for storage in storages}
