"""Describe an FX graph with functional collectives as a document to plan from.

The document lists the nodes with their inputs, times and allocations, the collectives with group
and bytes, and the waits. The caller supplies the times, measured or from a model. Nodes that write
in place or draw random numbers keep their order.
Complexity: O(nodes + arguments).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from planner.profiling.dependences import dependences
from planner.profiling.samples import tensors_in

DOCUMENT_VERSION = 1

MERGEABLE = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce")
"""Collectives that can be merged into one, as Inductor's bucketing does."""

_NO_TRANSFERS = ("", "wait_tensor")

_SAMPLES = tuple(1 << power for power in range(10, 33, 2))
"""Sizes (bytes) at which the time of each kind of collective is sampled."""


def fx_document(
    graph: fx.Graph,
    *,
    node_ns: Callable[[fx.Node], float],
    collective_ns: Callable[[fx.Node, int], float],
    copy_gbps: float = 0.0,
    samples: Sequence[int] = _SAMPLES,
) -> dict[str, Any]:
    """Return the planning document of a graph, such as one given to a compiler backend.

    Parameters
    ----------
    graph : torch.fx.Graph
        With fake or real tensors in its nodes' ``meta["val"]``.
    node_ns : callable
        Returns the computation time of a node (ns).
    collective_ns : callable
        Returns the time (ns) of a node's collective for an input of the given bytes.
    copy_gbps : float
        Memory bandwidth (10^9 bytes/s) for packing and unpacking merged collectives; 0 makes
        copies free.
    samples : sequence of int
        Sizes (bytes) at which `collective_ns` is sampled; times between them are interpolated.

    Returns
    -------
    dict
        Plain values, the input of ``planner import fx``.

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
    needed = dependences(graph, keep_collectives=False)
    storages: dict[str, set[int]] = {}
    same: dict[int, int] = {}
    for node in graph.nodes:
        name = collective_name(node)
        mine = {same.get(key, key): size for key, size in _storages(node).items()}
        if name == "wait_tensor":
            # A wait returns its collective's output; fake tensors give it another storage.
            made = [key for other in node.all_input_nodes for key in storages[other.name]]
            same.update(dict.fromkeys(mine, made[0]) if made else {})
            mine = dict.fromkeys(made, 0)
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


def collective_name(node: fx.Node) -> str:
    """Return the operator name of a functional collective or wait, else an empty string."""
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload):
        return ""
    if target.namespace not in {"_c10d_functional", "c10d_functional"}:
        return ""
    return str(target.name()).partition("::")[2].partition(".")[0]


def collective_key(node: fx.Node) -> tuple[str, int]:
    """Return the key of a collective in `times` (kind and group), and its input size (bytes)."""
    row = _collective(node, collective_name(node), 0.0)
    return f"{row['kind']}@{row['group']}", row["size_bytes"]


def _collective(node: fx.Node, name: str, copy_gbps: float) -> dict[str, Any]:
    arguments = _arguments(node)
    read = _bytes([other.meta.get("val") for other in node.all_input_nodes[:1]])
    made = _bytes([node.meta.get("val")])
    value: Any = node.all_input_nodes[0].meta.get("val")
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
        "pack_bytes": read if mergeable else 0,
        "unpack_bytes": made if gathers else 0,
    }


def _copy_ns(size: int, gbps: float) -> int:
    """Return the time (ns) to read and write the given bytes."""
    return round(2 * size / gbps) if gbps else 0


def _arguments(node: fx.Node) -> dict[str, Any]:
    schema: Any = getattr(node.target, "_schema")  # noqa: B009 - torch has no other name for it
    names = [argument.name for argument in schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _bytes(values: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(values))


def _storages(node: fx.Node) -> dict[int, int]:
    """Return the storages of a node's output with their sizes (bytes), without host memory."""
    bytes_of = {}
    for tensor in tensors_in(node.meta.get("val")):
        storage = tensor.untyped_storage()
        if tensor.device.type != "cpu" or not torch.cuda.is_available():
            # Its identity, which exists also for a storage without memory.
            key: int = getattr(storage, "_cdata")  # noqa: B009 - torch has no other name for it
            bytes_of[key] = int(storage.nbytes())
    return bytes_of
