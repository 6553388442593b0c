"""Windows of rows: which input rows an output row of a block needs.

Problem: to cut a block of layers, with or without branches, into bands of rows, the fetched rows
must be known. Method: windows of consecutive layers are composed, those of branches that meet are
joined; see docs/yan.md, "How a profile becomes layers".

Guarantee: no needed row is left out. Without a dataflow graph every layer counts as reading the one
before it, which may be more than needed. Complexity: O(ops of the block). Source: own.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from planner.model.graphs import Graph
from planner.model.layers import Layer

LOCAL = ("norm", "activation", "embedding", "view")
"""Kinds whose output row needs the same row of the input only."""


class Window(NamedTuple):
    """Row r of `rows` rows needs rows r * step + low to r * step + high, both included."""

    step: int
    low: int
    high: int
    rows: int

    def behind(self, first: "Window") -> "Window":
        """Return the window of this layer on the input of `first`, whose output it reads."""
        return Window(
            first.step * self.step,
            first.low + first.step * self.low,
            first.high + first.step * self.high,
            self.rows,
        )


def rows_read(layer: Layer, before: int | None) -> int:
    """Return how many rows a layer reads; `before` is the number passed on to it, if known."""
    shape = layer.input_shape or layer.output_shape
    assert shape is not None
    if layer.kind in ("conv", "pool"):
        if before is not None and layer.input_shape is None:
            return before
        if len(shape) == 1:
            return 1
        step = layer.stride[0] if layer.stride and layer.input_shape is None else 1
        return step * shape[1]
    if before is not None and before in _rows(shape):
        return before
    if layer.kind == "embedding":
        assert layer.output_shape is not None
        return prod(layer.output_shape[:-1])
    return shape[1] if len(shape) > 2 and layer.kind != "full" else prod(shape[:-1])


def _rows(shape: Sequence[int]) -> set[int]:
    """Return the possible numbers of rows: of images, or of positions."""
    return {prod(shape[:-1]), *shape[1:2]}


def _through(layer: Layer, before: Window) -> Window | None:
    """Return the window after a layer, or None if there is none."""
    shape = layer.output_shape
    assert shape is not None
    if layer.kind in ("conv", "pool") and layer.kernel and layer.stride and len(shape) > 1:
        rows, kernel, stride = shape[1], layer.kernel[0], layer.stride[0]
        padding = (rows - 1) * stride + kernel - before.rows
        if not -stride < padding <= 2 * (kernel - 1):
            return None
        top = (max(0, padding) + 1) // 2
        return Window(stride, -top, kernel - 1 - top, rows).behind(before)
    if layer.kind == "full":
        return before if prod(shape[:-1]) == before.rows else None
    if layer.kind == "view" or (layer.kind in LOCAL and before.rows in _rows(shape)):
        return before
    return None


def _joined(windows: Iterable[Window | None]) -> Window | None:
    first, *others = windows
    if first is None:
        return None
    for window in others:
        if window is None or (window.step, window.rows) != (first.step, first.rows):
            return None
        low, high = min(first.low, window.low), max(first.high, window.high)
        first = first._replace(low=low, high=high)
    return first


def block_window(members: Mapping[str, Layer], graph: Graph | None, rows: int) -> Window | None:
    """Return the window of a block with `rows` input rows; None if it cannot be cut.

    `members` are its layers by the name of their forward op, in order.
    """
    start = Window(1, 0, 0, rows)
    ops = [] if graph is None else [op for op in graph.ops if op.phase == "forward"]
    places = {op.name: place for place, op in enumerate(ops)}
    if len(members) == 1 or not members.keys() <= places.keys():
        window: Window | None = start
        for layer in members.values():
            window = None if window is None else _through(layer, window)
        return window
    by_op: dict[str, Window | None] = {}
    read: set[str] = set()
    first = min(places[name] for name in members)
    last = max(places[name] for name in members)
    for op in ops[first : last + 1]:
        inside = [name for name in op.after if name in by_op]
        read.update(inside)
        outside = [start] if len(inside) < len(op.after) or not op.after else []
        window = _joined([*outside, *(by_op[name] for name in inside)])
        if window is not None and op.name in members:
            window = _through(members[op.name], window)
        by_op[op.name] = window
    return _joined(window for name, window in by_op.items() if name not in read)
