"""Kinds and shapes of the layers of a PipeDream graph.

Method: a row has PyTorch's description of its module and the size of its output; divided by the
samples of a batch this is the output shape of one sample. Images are assumed to be square, elements
to have four bytes. Connections follow from the description.
Guarantee: what does not follow stays unknown, such as the connections of recurrent layers.
Complexity: O(rows + edges). Source: own.
"""

import re
from collections.abc import Mapping, Sequence
from math import isqrt, prod
from typing import Any

from planner.formats.importers.kept import VIEWS
from planner.formats.importers.pipedream_rows import Node
from planner.model.validation import MAX_VALUE

_NUMBER_BYTES = 4
_NORMS = ("BatchNorm1d", "BatchNorm2d", "LayerNorm", "GroupNorm", "LocalResponseNorm")
_POINTWISE = ("ReLU", "Dropout", "Dropout2d", "Add", "Sub", "Sigmoid", "Tanh", "Concat", "Identity")
_POOLS = ("MaxPool2d", "AvgPool2d")

Shape = tuple[int, ...]


def shapes_of(
    nodes: Sequence[Node], reads: Mapping[int, Sequence[int]], batch_size: int | None
) -> list[dict[str, Any]]:
    """Return the fields of `planner.model.layers.Layer` for each row, besides times and sizes.

    `nodes` are in order of computation; `reads` holds the positions that each row reads. Without a
    `batch_size` nothing is known.
    """
    made: list[Shape | None] = []
    rows: list[dict[str, Any]] = []
    for place, node in enumerate(nodes):
        numbers, rest = divmod(node.activation_bytes, _NUMBER_BYTES * (batch_size or 1))
        known: dict[str, Any] = {}
        read = [made[source] for source in reads.get(place, ()) if nodes[source].kind != "Size"]
        if batch_size is not None and numbers and (not rest or node.kind == "Size"):
            known = _possible(node, numbers, read)
        elif batch_size is not None and node.kind == "Size":
            known = {"kind": "view", "output_shape": (1,), "connections": 0}
        made.append(known.get("output_shape"))
        if known and read and read[0] is not None and len(set(read)) == 1:
            known["input_shape"] = read[0]
        if known:
            known["weights"] = node.parameter_bytes // _NUMBER_BYTES
        rows.append(known)
    return rows


def _possible(node: Node, numbers: int, read: Sequence[Shape | None]) -> dict[str, Any]:
    """Return the fields of a row; empty if they are impossible."""
    try:
        known = _row(node, numbers, read)
    except ArithmeticError:  # no channels
        return {}
    windows = (*(known.get("kernel") or (1,)), *(known.get("stride") or (1,)))
    fits = (known.get("connections") or 0) <= MAX_VALUE
    return known if fits and all(windows) else {}


def _row(node: Node, numbers: int, read: Sequence[Shape | None]) -> dict[str, Any]:
    kind, text = node.kind, node.operation
    shape: Shape | None
    before = read[0] if read else None
    if kind == "Conv2d":
        match = re.search(
            r"\((\d{1,9}), (\d{1,9}), kernel_size=\((\d{1,9}), (\d{1,9})\), stride=\((\d{1,9}), ",
            text,
        )
        shape = None if match is None else _square(numbers, int(match[2]))
        if match is None or shape is None:
            return {}
        apart = re.search(r"dilation=\((\d{1,9}), (\d{1,9})\)", text)
        each = [int(match[3]), int(match[4])]
        steps = [int(step) for step in (apart.groups() if apart else (1, 1))]
        groups = re.search(r"groups=(\d{1,9})", text)
        inputs = int(match[1]) // (int(groups[1]) if groups else 1)
        return {
            "kind": "conv",
            "output_shape": shape,
            "kernel": tuple(step * (k - 1) + 1 for k, step in zip(each, steps, strict=True)),
            "stride": _pair(text, "stride"),
            "connections": numbers * inputs * prod(each),
        }
    if kind == "Linear":
        match = re.search(r"in_features=(\d{1,9}), out_features=(\d{1,9})", text)
        if match is None or numbers % int(match[2]):
            return {}
        positions = numbers // int(match[2])
        shape = (int(match[2]),) if positions == 1 else (positions, int(match[2]))
        return {"kind": "full", "output_shape": shape, "connections": numbers * int(match[1])}
    if kind in _POOLS:
        shape = None if before is None else _square(numbers, before[0])
        if shape is None or before is None or len(before) < 2:
            return {}
        return {
            "kind": "pool",
            "output_shape": shape,
            "kernel": _pair(text, "kernel_size"),
            "stride": _pair(text, "stride"),
            "connections": 0,
        }
    if kind == "Embedding":
        match = re.search(r"\(\d{1,9}, (\d{1,9})", text)
        if match is None or numbers % int(match[1]):
            return {}
        shape = (numbers // int(match[1]), int(match[1]))
        return {"kind": "embedding", "output_shape": shape, "connections": numbers}
    if kind in VIEWS:
        same = before if before is not None and prod(before) == numbers else (numbers,)
        return {"kind": "view", "output_shape": same, "connections": 0}
    if kind in _NORMS or kind in _POINTWISE:
        shape = _like(numbers, read)
        light = "norm" if kind in _NORMS else "activation"
        connections = numbers if kind in _NORMS else 0
        return {"kind": light, "output_shape": shape, "connections": connections}
    counted = None if node.parameter_bytes else 0
    return {"kind": "other", "output_shape": (numbers,), "connections": counted}


def _like(numbers: int, read: Sequence[Shape | None]) -> Shape:
    """Return the output shape of a pointwise layer, or of a concatenation of channels."""
    before = read[0] if read else None
    if before is None or prod(before) == numbers or not before[1:] or numbers % prod(before[1:]):
        return before if before is not None and prod(before) == numbers else (numbers,)
    return (numbers // prod(before[1:]), *before[1:])


def _square(numbers: int, channels: int) -> Shape | None:
    side = isqrt(numbers // channels) if channels else 0
    return (channels, side, side) if side and channels * side * side == numbers else None


def _pair(text: str, field: str) -> tuple[int, int] | None:
    match = re.search(field + r"=(?:\((\d{1,9}), (\d{1,9})\)|(\d{1,9}))", text)
    if match is None:
        return None
    down, across = (match[1], match[2]) if match[1] else (match[3], match[3])
    return int(down), int(across)
