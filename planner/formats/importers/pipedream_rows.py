"""Rows of PipeDream's graphs, and warnings about implausible ones; rows are imported unchanged."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from planner.formats.importers.kept import VIEWS
from planner.model.units import format_bytes

_FLOAT_BYTES = 4
_TINY_BYTES = 1 << 20
"""Work on less than this may take no measurable time."""
_NOTABLE_NS = 10**6
"""Shorter times are mostly the cost of starting a kernel."""
_SWALLOWED = 10
"""If backward / forward time exceeds this, the row may hold another row's backward time."""
_MISSING = 100
"""If forward / backward time exceeds this, the backward time is missing: set-up is too short."""
_LINES = 5
"""Largest number of lines that a warning lists."""


@dataclass(frozen=True, slots=True)
class Node:
    """One row: an operation with its times and sizes."""

    name: str
    operation: str
    line: int
    forward_ns: int
    backward_ns: int
    activation_bytes: int
    parameter_bytes: int

    @property
    def kind(self) -> str:
        """The kind of operation, such as ``Conv2d``."""
        return self.operation.partition("(")[0]

    @property
    def times(self) -> str:
        """Its times as text."""
        return f"{self.forward_ns / 1e6:g} ms forward and {self.backward_ns / 1e6:g} ms backward"

    @property
    def where(self) -> str:
        """Its line, name and kind as text."""
        return f"line {self.line}: {self.name} {self.kind}"


def doubts(nodes: Sequence[Node], links: Iterable[tuple[int, int]]) -> list[str]:
    """Return warnings about implausible rows; `links` are (producer, consumer) positions."""
    doubted = []
    untimed: dict[str, list[Node]] = {}
    swallowed = {
        consumer: producer
        for producer, consumer in links
        if _lacks_backward(nodes[consumer]) and _has_others(nodes[producer])
    }
    for place, node in enumerate(nodes):
        expected = _parameters(node.operation)
        if expected is not None and expected * _FLOAT_BYTES != node.parameter_bytes:
            doubted.append(
                f"{node.where} has {expected} parameters by its description, "
                f"{expected * _FLOAT_BYTES} bytes, but parameter_size says {node.parameter_bytes}"
            )
        if _lacks_backward(node):
            where = "the forward time holds something else (set-up, choice of an algorithm)"
            if place in swallowed:
                holder = nodes[swallowed[place]]
                where = (
                    f"line {holder.line}, {holder.name} {holder.kind}, with {holder.times}, "
                    "seems to hold its backward time, and gradients get ready too early"
                )
            elif node.backward_ns * _MISSING < node.forward_ns:
                where = "its backward time is missing, or is in another row"
            doubted.append(
                f"{node.where} takes {node.times}, which computes at least as much, for "
                f"{format_bytes(node.parameter_bytes)} of parameters: {where}"
            )
        work = max(node.activation_bytes, node.parameter_bytes)
        if (
            work > _TINY_BYTES
            and node.kind not in (*VIEWS, "Dropout")
            and not node.forward_ns * node.backward_ns
        ):
            untimed.setdefault(node.kind, []).append(node)
    for kind, rows in untimed.items():
        largest = max(max(node.activation_bytes, node.parameter_bytes) for node in rows)
        doubted.append(
            f"{_lines([node.line for node in rows])}: {kind} handles up to "
            f"{format_bytes(largest)} in a time of 0: it was not timed"
        )
    return doubted


def _lacks_backward(node: Node) -> bool:
    """Whether the forward pass is much longer than the backward pass, which computes more."""
    return bool(node.parameter_bytes) and node.forward_ns > max(_NOTABLE_NS, 2 * node.backward_ns)


def _has_others(node: Node) -> bool:
    """Whether the backward pass is too long to be the row's own."""
    return node.backward_ns > max(_NOTABLE_NS, _SWALLOWED * node.forward_ns)


def _lines(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(lines)[:_LINES]))
    more = len(lines) - _LINES
    return f"line{'s' if len(lines) > 1 else ''} {shown}" + (
        f" and {more} more" if more > 0 else ""
    )


def _parameters(operation: str) -> int | None:
    """Return the number of parameters that an operation's description implies, or None."""
    try:
        return _described_parameters(operation)
    except (ArithmeticError, ValueError):  # a description nobody can compute with tells nothing
        return None


def _described_parameters(operation: str) -> int | None:
    kind = operation.partition("(")[0]
    if kind == "Linear":
        match = re.search(r"in_features=(\d{1,9}), out_features=(\d{1,9})\b", operation)
        if match is None:
            return None
        inputs, outputs = int(match[1]), int(match[2])
        return outputs * (inputs + ("bias=False" not in operation))
    if kind == "Conv2d":
        match = re.search(r"\((\d{1,9}), (\d{1,9}), kernel_size=\((\d{1,9}, \d{1,9})\)", operation)
        if match is None:
            return None
        inputs, outputs = int(match[1]), int(match[2])
        groups = re.search(r"groups=(\d{1,9})\b", operation)
        weights = inputs // (int(groups[1]) if groups else 1) * prod(map(int, match[3].split(",")))
        return outputs * (weights + ("bias=False" not in operation))
    if kind == "BatchNorm2d" and "affine=False" not in operation:
        match = re.search(r"\((\d{1,9})\b", operation)
        return None if match is None else 2 * int(match[1])
    return None
