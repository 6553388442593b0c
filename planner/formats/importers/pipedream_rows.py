"""Rows of PipeDream's graphs: what follows from a row's operation, and implausible rows.

A row has PyTorch's description of its module and the size of its output. Rows are imported
unchanged; `doubts` are warnings about them. Complexity: O(rows + edges).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from planner.formats.importers.timed_rows import listed
from planner.model.profiles import NUMBER_BYTES
from planner.model.units import format_bytes

_TINY_BYTES = 1 << 20  # work on less than this may take no measurable time
_NOTABLE_NS = 10**6  # shorter times are mostly the cost of starting a kernel
_SWALLOWED = 10
"""If backward / forward time exceeds this, the row may hold another row's backward time."""
_MISSING = 100
"""If forward / backward time exceeds this, the backward time is missing: set-up is too short."""

VIEWS = (
    "View", "Size", "Flatten", "Identity", "Reshape", "Transpose", "Permute", "Squeeze",
    "Unsqueeze", "Expand", "Narrow", "Select", "Chunk", "Split", "Unbind", "__getitem__",
)  # fmt: skip
"""Kinds that compute nothing: their output is a part of their input."""


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
        if expected is not None and expected * NUMBER_BYTES != node.parameter_bytes:
            doubted.append(
                f"{node.where} has {expected} parameters by its description, "
                f"{expected * NUMBER_BYTES} bytes, but parameter_size says {node.parameter_bytes}"
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
            f"line{'s' if len(rows) > 1 else ''} "
            f"{listed([str(line) for line in sorted(node.line for node in rows)])}: "
            f"{kind} handles up to "
            f"{format_bytes(largest)} in a time of 0: it was not timed"
        )
    return doubted


def _lacks_backward(node: Node) -> bool:
    """Whether the forward pass is much longer than the backward pass, which computes more."""
    return bool(node.parameter_bytes) and node.forward_ns > max(_NOTABLE_NS, 2 * node.backward_ns)


def _has_others(node: Node) -> bool:
    """Whether the backward pass is too long to be the row's own."""
    return node.backward_ns > max(_NOTABLE_NS, _SWALLOWED * node.forward_ns)


def _parameters(operation: str) -> int | None:
    """Return the number of parameters that an operation's description implies, or None."""
    kind, bias = operation.partition("(")[0], "bias=False" not in operation
    try:
        if kind == "Linear" and (features := _FEATURES.search(operation)):
            return int(features[2]) * (int(features[1]) + bias)
        if kind == "Conv2d" and (filters := _filters(operation)):
            return filters.outputs * (filters.inputs * prod(filters.kernel) + bias)
    except (ArithmeticError, ValueError):  # a description nobody can compute with tells nothing
        return None
    if kind == "BatchNorm2d" and "affine=False" not in operation:
        match = re.search(r"\((\d{1,9})\b", operation)
        return None if match is None else 2 * int(match[1])
    return None


_FEATURES = re.compile(r"in_features=(\d{1,9}), out_features=(\d{1,9})\b")


class _Filters(NamedTuple):
    """Of a convolution: channels that a filter reads, number and size of filters."""

    inputs: int
    outputs: int
    kernel: tuple[int, int]


def _filters(operation: str) -> _Filters | None:
    match = re.search(r"\((\d{1,9}), (\d{1,9}), kernel_size=\((\d{1,9}), (\d{1,9})\)", operation)
    if match is None:
        return None
    groups = re.search(r"groups=(\d{1,9})\b", operation)
    inputs = int(match[1]) // (int(groups[1]) if groups else 1)
    return _Filters(inputs, int(match[2]), (int(match[3]), int(match[4])))


# ---
# Which outputs of a network's operations autograd keeps for the backward pass.
#
# Problem: adding up all outputs counts a convolution, its batch normalisation and its activation
# three times, where two tensors are kept. Method: PyTorch's rules by kind of operation. An output
# is kept, once, if the operation's own gradient is computed from it (ReLU, sigmoid, softmax,
# recurrent layers), an operation that reads it needs its input (also through views), or nothing
# reads it but the loss. The rules by kind: docs/profiles.md, "Which outputs are kept". Guarantee:
# none for other frameworks, fused kernels, or the inside of composite modules. On a CPU dropout's
# mask is as large as its output. Source: PyTorch's notes on autograd and its formulas of gradients;
# the rest is own.

_FROM_OUTPUT = ("ReLU", "Sigmoid", "Tanh", "Softmax", "LogSoftmax")
_BY_OUTPUT = (*_FROM_OUTPUT, "LSTM", "GRU", "RNN")
_NO_INPUT = ("Dropout", "Dropout2d", "Add", "Sub", "Concat", "Embedding", "ZeroPad2d")
_NEED_NO_INPUT = (*_FROM_OUTPUT, *_NO_INPUT)
_BESIDE = {"Dropout": 1, "MaxPool2d": 8}
"""Bytes per output element that are kept in addition: a mask, or positions of maxima."""


def kept_bytes(
    kinds: Sequence[str], sizes: Sequence[int], links: Iterable[tuple[int, int]]
) -> tuple[int, ...]:
    """Return the bytes that each operation keeps.

    `kinds` are such as ``Conv2d``, `sizes` those of the outputs (bytes, elements of four), in order
    of computation; `links` are pairs (producer, consumer) with producer < consumer.
    """
    readers: list[list[int]] = [[] for _ in kinds]
    for producer, consumer in links:
        readers[producer].append(consumer)
    needed = [False] * len(kinds)  # whether a reader's gradient is computed from the output
    for place in reversed(range(len(kinds))):
        needed[place] = not readers[place] or any(
            needed[reader] if kinds[reader] in VIEWS else kinds[reader] not in _NEED_NO_INPUT
            for reader in readers[place]
        )
    return tuple(
        0
        if kind in VIEWS
        else (size if own or kind in _BY_OUTPUT else 0)
        + size * _BESIDE.get(kind, 0) // NUMBER_BYTES
        for kind, size, own in zip(kinds, sizes, needed, strict=True)
    )
