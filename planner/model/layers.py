"""Layers of a model: measured numbers, and their merging into a layer, a graph or blocks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.units import counted
from planner.model.validation import MAX_VALUE, integer, one_of, set_integer, shown

KINDS = ("conv", "full", "norm", "embedding", "activation", "pool", "view", "attention", "other")
"""Kinds of layers: `view` moves no numbers; `activation` treats each number by itself."""


_SUMMED = ("forward_ns", "backward_ns", "parameter_bytes", "activation_bytes")
_TIMED = ("gradient_ready_ns", "forward_spread_ns", "backward_spread_ns")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its times, its parameters, its output.

    Attributes
    ----------
    name : str
        Name of the module.
    forward_ns, backward_ns : int
        Times of its forward and backward computation.
    parameter_bytes : int
        Size of its parameters. A parameter shared between layers counts in the first layer that
        uses it: it is needed there first, and its gradient is complete there last.
    gradient_bytes : int or None
        Size of the gradient as sent; None means `parameter_bytes` (compressed or sparse gradients
        are smaller).
    activation_bytes : int
        Size of its output.
    kept_bytes : int or None
        Saved activations for the backward pass; if None (unknown), the output counts instead.
    gradient_ready_ns : int or None
        When its gradients are complete, counted from the start of the backward pass.
    forward_spread_ns, backward_spread_ns : int or None
        Interquartile range of the measured times.
    block : int or None
        Number of its block: the branches between two points where the computation is a single
        chain.
    parameters : tuple of str
        Names of its parameters in the model, such as ``conv1.weight``; empty if it has none, or if
        they are unknown.
    kind : str or None
        One of `KINDS`; `attention` mixes positions with each other, `other` may do anything.
    input_shape, output_shape : tuple of int or None
        Shape of the input and output of one sample; (channels, rows, columns) for images.
    kernel, stride : tuple of int or None
        Of a convolution or a pooling, by direction: the window's size and its step.
    connections : int or None
        Multiply-adds of a sample's feed-forward evaluation.
    weights : int or None
        Numbers in its parameters, including those shared with other layers.
    """

    name: str
    forward_ns: int
    backward_ns: int
    parameter_bytes: int
    gradient_bytes: int | None = None
    activation_bytes: int = 0
    gradient_ready_ns: int | None = None
    forward_spread_ns: int | None = None
    backward_spread_ns: int | None = None
    block: int | None = None
    parameters: tuple[str, ...] = ()
    kept_bytes: int | None = None
    kind: str | None = None
    input_shape: Sequence[int] | None = None
    output_shape: Sequence[int] | None = None
    kernel: Sequence[int] | None = None
    stride: Sequence[int] | None = None
    connections: int | None = None
    weights: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidInputError("name", f"expected a string, got {shown(self.name)}")
        for name in _SUMMED:
            set_integer(self, name)
        for name in ("gradient_bytes", "kept_bytes", "block", "connections", "weights", *_TIMED):
            if getattr(self, name) is not None:
                set_integer(self, name)
        if not isinstance(self.parameters, tuple) or not all(
            isinstance(name, str) for name in self.parameters
        ):
            raise InvalidInputError("parameters", f"expected names, got {shown(self.parameters)}")
        if self.kind is not None:
            one_of(self.kind, KINDS, "kind")
        for name in ("input_shape", "output_shape", "kernel", "stride"):
            lengths = getattr(self, name)
            if lengths is not None:
                object.__setattr__(self, name, _lengths(lengths, name))
        if self.gradient_bytes is None:
            object.__setattr__(self, "gradient_bytes", self.parameter_bytes)

    @property
    def pushed_bytes(self) -> int:
        """Size of the gradient as sent."""
        return self.parameter_bytes if self.gradient_bytes is None else self.gradient_bytes

    @property
    def saved_activation_bytes(self) -> int:
        """Size of the saved activations, or of the output if these are unknown."""
        return self.activation_bytes if self.kept_bytes is None else self.kept_bytes

    def scaled(self, computation: Fraction | int) -> "Layer":
        """Return the layer with all times multiplied, each rounded to whole nanoseconds."""
        names = ("forward_ns", "backward_ns", *_TIMED)
        known = {name: getattr(self, name) for name in names}
        return replace(
            self, **{name: round(time * computation) for name, time in known.items() if time}
        )


def _lengths(lengths: object, name: str) -> tuple[int, ...]:
    if not isinstance(lengths, tuple | list):
        raise InvalidInputError(name, f"expected an array, got {shown(lengths)}")
    checked = tuple(
        integer(length, f"{name}[{place}]", minimum=1) for place, length in enumerate(lengths)
    )
    if prod(checked) > MAX_VALUE:
        raise InvalidInputError(name, f"expected at most {MAX_VALUE} numbers")
    return checked


def merged(unit: list[Layer]) -> Layer:
    """Return several layers as one, without kind and shapes, named after those with parameters."""
    if len(unit) == 1:
        return replace(unit[0], block=None)  # a chain has no branches
    ready = [layer.gradient_ready_ns for layer in unit if layer.gradient_ready_ns is not None]
    return Layer(
        name=_common_name([layer.name for layer in unit if layer.parameter_bytes]),
        **{name: sum(getattr(layer, name) for layer in unit) for name in _SUMMED},
        gradient_bytes=sum(layer.pushed_bytes for layer in unit),
        gradient_ready_ns=max(ready, default=None),
        forward_spread_ns=_sum_known([layer.forward_spread_ns for layer in unit]),
        backward_spread_ns=_sum_known([layer.backward_spread_ns for layer in unit]),
        parameters=tuple(name for layer in unit for name in layer.parameters),
        kept_bytes=None
        if all(layer.kept_bytes is None for layer in unit)
        else sum(layer.saved_activation_bytes for layer in unit),
    )


def _sum_known(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _common_name(names: list[str]) -> str:
    """Return the common prefix of dotted names, or else the first and the last name."""
    if len(names) <= 1:
        return "".join(names)
    shared = []
    for parts in zip(*(name.split(".") for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared) or f"{names[0]}–{names[-1]}"


def graph_of_layers(layers: Sequence[Layer], links: Iterable[tuple[int, int]]) -> Graph:
    """Return the dataflow graph of layers, with one parameter per layer with gradients.

    A layer's forward op depends on the forward ops of the layers it reads; its backward op depends
    on its own forward op and on the backward ops of its readers. `links` are pairs (layer, reader)
    by position. Repeated names get a suffix ``#2``. Raises InvalidInputError if no layer has
    gradients to send, or the links form a cycle.
    """
    names = unique_names([layer.name for layer in layers])
    read: list[list[int]] = [[] for _ in layers]
    readers: list[list[int]] = [[] for _ in layers]
    for producer, consumer in dict.fromkeys(links):
        read[consumer].append(producer)
        readers[producer].append(consumer)
    parameters = tuple(
        Parameter(name, layer.pushed_bytes, (f"{name}/backward",), (f"{name}/forward",))
        for name, layer in zip(names, layers, strict=True)
        if layer.pushed_bytes
    )
    if not parameters:
        raise InvalidInputError("layers", "expected at least one layer with gradients to send")
    forward = [
        Op(
            f"{name}/forward",
            layer.forward_ns,
            "forward",
            tuple(f"{names[producer]}/forward" for producer in producers),
            layer.forward_spread_ns,
        )
        for name, layer, producers in zip(names, layers, read, strict=True)
    ]
    backward = [
        Op(
            f"{name}/backward",
            layer.backward_ns,
            "backward",
            (*(f"{names[consumer]}/backward" for consumer in consumers), f"{name}/forward"),
            layer.backward_spread_ns,
        )
        for name, layer, consumers in zip(names, layers, readers, strict=True)
    ]
    return Graph((*forward, *reversed(backward)), parameters)


def with_spreads(graph: Graph, layers: Sequence[Layer]) -> Graph:
    """Return the graph with the layers' spreads on the ops that are a layer's pass.

    Spreads that the graph has are kept. The result is cached in the graph.
    """
    names = unique_names(layer.name for layer in layers)
    known: dict[str, int] = {}
    for name, layer in zip(names, layers, strict=True):
        for phase in ("forward", "backward"):
            spread = getattr(layer, f"{phase}_spread_ns")
            if spread is not None:
                known[f"{name}/{phase}"] = spread
    missing = {op.name for op in graph.ops if op.spread_ns is None and op.name in known}
    if not missing:
        return graph

    def annotated() -> Graph:
        ops = (
            replace(op, spread_ns=known[op.name]) if op.name in missing else op for op in graph.ops
        )
        return Graph(tuple(ops), graph.parameters)

    return graph.remembered(("with_spreads", frozenset(known.items())), annotated)


def unique_names(names: Iterable[str]) -> list[str]:
    """Return distinct names: repeated names get a suffix ``#2``, ``#3``, …."""
    wanted = list(names)
    taken = set(wanted)
    distinct: list[str] = []
    times: dict[str, int] = {}
    for name in wanted:
        chosen = name
        times[name] = times.get(name, 0) + 1
        while times[name] > 1 and (chosen := f"{name}#{times[name]}") in taken:
            times[name] += 1  # another item has this name
        distinct.append(chosen)
    return distinct


def chain_blocks(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the block of each node, non-decreasing from 0. O(count + edges).

    Nodes are numbered in the order of computation; edges are (producer, consumer), producer <
    consumer. A cut behind node i is clean if no later node reads a node before i. The nodes between
    two consecutive clean cuts form a block.
    """
    farthest = [0] * count
    for producer, consumer in edges:
        farthest[producer] = max(farthest[producer], consumer)
    blocks, block, reach = [], 0, 0
    for node in range(count):
        blocks.append(block)
        if reach <= node:  # no later node reads a node before `node`
            block += 1
        reach = max(reach, farthest[node])
    return blocks


# ---
# Short names for sets of parameters, for rows of pictures of about thirty characters.
#
# Guarantee: the text is not longer than requested, unless even the count is; it shows whole
# components of names only. Complexity: O(components of the first and last name). Source: own.

_MOST = 3  # up to this number of parameters, all names are listed if they fit


def module_range(names: Sequence[str], length: int) -> str:
    """Return a name for some parameters, of at most `length` characters.

    One parameter gets its name; two or three get all their names if these fit. Otherwise the first
    and last module are given, with their common prefix once: ``features.28 – 34``. If that is too
    long, inner modules are left out, then outer ones (replaced by ``…``); the last resort is a
    count.
    """
    texts = _of_one(names[0]) if len(names) == 1 else _of_several(names)
    return next((text for text in texts if len(text) <= length), counted(len(names), "parameter"))


def _of_one(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield name
    for left_out in range(1, len(parts)):
        yield "…" + ".".join(parts[left_out:])


def _of_several(names: Sequence[str]) -> Iterator[str]:
    if len(names) <= _MOST:
        yield ", ".join(names)
    first, last = (_module(name) for name in (names[0], names[-1]))
    pairs = list(zip(first, last, strict=False))
    common = next((at for at, (left, right) in enumerate(pairs) if left != right), len(pairs))
    if first == last:
        yield f"{'.'.join(first)} ({counted(len(names), 'parameter')})"
        yield from _of_one(".".join(first))
        return
    for left_out in range(max(common, 1)):
        for depth in range(max(len(first), len(last)), common, -1):
            start, end = first[left_out:depth], last[common:depth]
            if not start or not end:  # one module contains the other
                continue
            yield f"{'…' if left_out else ''}{'.'.join(start)} – {'.'.join(end)}"


def _module(name: str) -> list[str]:
    """Return the components of a parameter's module; a name without dots is its own module."""
    parts = name.split(".")
    return parts[:-1] or parts
