"""Reads the graphs PipeDream's profiler writes.

One line a node, ``node12 -- Conv2d(…) -- forward_compute_time=…, backward_compute_time=…,
activation_size=…, parameter_size=…`` with times in milliseconds and sizes in bytes (a list in
brackets where a module has several outputs), in any order; then one tab-indented line an edge,
``node11 -- node12``. The row called Input is data loading: it is no layer, and its time is not
forward computation. The nodes become both the layers of the profile and, with the edges, its
dataflow graph: a node's backward pass follows those of the nodes that read it.

Complexity: O(nodes · log nodes + edges).
Source: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019,
and the format of its published profiles.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from heapq import heapify, heappop, heappush
from math import prod

from planner.errors import InvalidInputError
from planner.profiles import Layer, Profile, Provenance, chain_blocks, graph_of_layers
from planner.validation import MAX_VALUE, shown

__all__ = ["read_pipedream"]

_FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_FLOAT_BYTES = 4
_TINY_BYTES = 1 << 20
"""Work on less than this may truly take no measurable time."""
_NOTABLE_NS = 10**6
"""Shorter times are mostly the cost of starting a kernel."""
_VIEWS = ("View", "Size", "Flatten", "Dropout", "Identity")
"""Operations that move nothing."""


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    operation: str
    line: int
    forward_ns: int
    backward_ns: int
    activation_bytes: int
    parameter_bytes: int

    @property
    def kind(self) -> str:
        return self.operation.partition("(")[0]


def read_pipedream(
    text: str, *, name: str, source: str, batch_size: int | None = None
) -> tuple[Profile, tuple[str, ...]]:
    """Return the profile in a PipeDream graph file, and warnings about rows that cannot be true.

    Parameters
    ----------
    text : str
        Contents of the file.
    name : str
        Name of the model.
    source : str
        Where the file is from; kept in the profile with the hash of `text`.
    batch_size : int, optional
        Samples of one iteration; the file does not say.

    Raises
    ------
    InvalidInputError
        If the text is no such graph; the path is the line.
    """
    nodes: dict[str, _Node] = {}
    edges: list[tuple[str, str, int]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        if line[0].isspace():
            edges.append((*_edge(line, number), number))
            continue
        node = _node(line, number)
        if node.name in nodes:
            raise InvalidInputError(f"line {number}", f"{node.name} given twice")
        nodes[node.name] = node
    for one, other, number in edges:
        for end in (one, other):
            if end not in nodes:
                raise InvalidInputError(
                    f"line {number}", f"an edge names {shown(end)}, no such row"
                )
    inputs = {node.name for node in nodes.values() if node.operation == "Input"}
    links = [(one, other) for one, other, _ in edges if not inputs & {one, other}]
    order = _execution_order([name for name in nodes if name not in inputs], links)
    if not order:
        raise InvalidInputError("", "expected at least one layer, found none")
    position = {node: index for index, node in enumerate(order)}
    steps = [(position[one], position[other]) for one, other in links]
    layers = tuple(
        Layer(
            name=f"{node} {nodes[node].kind}",
            forward_ns=nodes[node].forward_ns,
            backward_ns=nodes[node].backward_ns,
            parameter_bytes=nodes[node].parameter_bytes,
            activation_bytes=nodes[node].activation_bytes,
            block=block,
        )
        for node, block in zip(order, chain_blocks(len(order), steps), strict=True)
    )
    weighted = any(layer.parameter_bytes for layer in layers)
    warnings = [
        f"line {node.line}: {node.name} is data loading, not a layer: left out "
        f"({node.forward_ns / 1e6:g} ms)"
        for node in nodes.values()
        if node.name in inputs
    ]
    warnings += _doubts([nodes[name] for name in order])
    return Profile(
        name=name,
        layers=layers,
        provenance=Provenance(
            kind="imported",
            source=f"PipeDream profiler graph {source}",
            notes=(f"sha256 of the file: {sha256(text.encode()).hexdigest()}", *warnings),
        ),
        batch_size=batch_size,
        graph=graph_of_layers(layers, steps) if weighted else None,
    ), tuple(warnings)


def _node(line: str, number: int) -> _Node:
    parts = line.split(" -- ")
    path = f"line {number}"
    if len(parts) != 3:
        raise InvalidInputError(
            path, f"expected 'node -- operation -- measurements', got {shown(line)}"
        )
    found = dict(re.findall(r"(\w+)=(\[[^\]]*\]|[^,\s]+)", parts[2]))
    missing = [field for field in _FIELDS if field not in found]
    if missing:
        raise InvalidInputError(path, f"missing {', '.join(missing)}")
    forward, backward, activation, parameters = (
        _amount(found[field], f"{path}, {field}", scale)
        for field, scale in zip(_FIELDS, (10**6, 10**6, 1, 1), strict=True)
    )
    return _Node(
        parts[0].strip(), parts[1].strip(), number, forward, backward, activation, parameters
    )


def _amount(text: str, path: str, scale: int) -> int:
    """Return a number, or the sum of a list ``[a; b]``, times `scale`, as an integer."""
    try:
        amount = sum(Decimal(item) for item in re.split(r"[;,]", text.strip("[]"))) * scale
    except ArithmeticError:
        raise InvalidInputError(path, f"expected a number, got {shown(text)}") from None
    if not (Decimal(amount).is_finite() and 0 <= amount <= MAX_VALUE):
        raise InvalidInputError(path, f"expected a number >= 0, got {shown(text)}")
    return round(amount)


def _edge(line: str, number: int) -> tuple[str, str]:
    ends = [end.strip() for end in line.split(" -- ")]
    if len(ends) != 2 or not all(ends):
        raise InvalidInputError(f"line {number}", f"expected 'node -- node', got {shown(line)}")
    return ends[0], ends[1]


def _execution_order(names: list[str], links: list[tuple[str, str]]) -> list[str]:
    """Order topologically; among what is ready, by node number, the order of creation."""
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(names, ()))
    for one, other in links:
        sorter.add(other, one)
    try:
        sorter.prepare()
    except CycleError as error:
        raise InvalidInputError(
            "", f"the edges form a cycle: {' -> '.join(error.args[1])}"
        ) from None
    order: list[str] = []
    ready = [(_number(name), name) for name in sorter.get_ready()]
    heapify(ready)
    while ready:
        _, name = heappop(ready)
        order.append(name)
        sorter.done(name)
        for following in sorter.get_ready():
            heappush(ready, (_number(following), following))
    return order


def _number(name: str) -> int:
    digits = re.sub(r"\D", "", name)
    return int(digits[:18]) if digits else 0


def _doubts(nodes: list[_Node]) -> list[str]:
    """Say which rows cannot be true."""
    doubts = []
    untimed: dict[str, list[_Node]] = {}
    for node in nodes:
        where = f"line {node.line}: {node.name} {node.kind}"
        expected = _parameters(node.operation)
        if expected is not None and expected * _FLOAT_BYTES != node.parameter_bytes:
            doubts.append(
                f"{where} has {expected} parameters by its description, "
                f"{expected * _FLOAT_BYTES} bytes, but parameter_size says {node.parameter_bytes}"
            )
        computes = node.kind in ("Conv2d", "Linear")
        if computes and node.forward_ns > max(_NOTABLE_NS, 2 * node.backward_ns):
            doubts.append(
                f"{where} takes {node.forward_ns / 1e6:g} ms forward and "
                f"{node.backward_ns / 1e6:g} ms backward, which computes at least as much: the "
                "forward time holds something else (set-up, choice of an algorithm)"
            )
        work = max(node.activation_bytes, node.parameter_bytes)
        if (
            work > _TINY_BYTES
            and node.kind not in _VIEWS
            and not node.forward_ns * node.backward_ns
        ):
            untimed.setdefault(node.kind, []).append(node)
    for kind, rows in untimed.items():
        lines = ", ".join(str(line) for line in sorted(node.line for node in rows))
        largest = max(max(node.activation_bytes, node.parameter_bytes) for node in rows)
        doubts.append(
            f"line{'s' if len(rows) > 1 else ''} {lines}: {kind} handles up to {largest} bytes in "
            "a time of 0: it was not timed"
        )
    return doubts


def _parameters(operation: str) -> int | None:
    """Return the number of parameters of an operation from its description, if it tells."""
    try:
        return _described_parameters(operation)
    except (ArithmeticError, ValueError):  # a description nobody can compute with tells nothing
        return None


def _described_parameters(operation: str) -> int | None:
    kind = operation.partition("(")[0]
    if kind == "Linear":
        found = re.search(r"in_features=(\d{1,9}), out_features=(\d{1,9})\b", operation)
        if found is None:
            return None
        inputs, outputs = int(found[1]), int(found[2])
        return outputs * (inputs + ("bias=False" not in operation))
    if kind == "Conv2d":
        found = re.search(r"\((\d{1,9}), (\d{1,9}), kernel_size=\((\d{1,9}, \d{1,9})\)", operation)
        if found is None:
            return None
        inputs, outputs = int(found[1]), int(found[2])
        groups = re.search(r"groups=(\d{1,9})\b", operation)
        weights = inputs // (int(groups[1]) if groups else 1) * prod(map(int, found[3].split(",")))
        return outputs * (weights + ("bias=False" not in operation))
    if kind == "BatchNorm2d" and "affine=False" not in operation:
        found = re.search(r"\((\d{1,9})\b", operation)
        return None if found is None else 2 * int(found[1])
    return None
