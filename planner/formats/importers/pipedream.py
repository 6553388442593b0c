"""Reads the graphs of PipeDream's profiler.

A line per node, in any order: ``node12 -- Conv2d(…) -- forward_compute_time=…,
backward_compute_time=…, activation_size=…, parameter_size=…``, times in milliseconds, sizes in
bytes (a list in brackets if a module has several outputs). Then a tab-indented line per edge,
``node11 -- node12``. The row called Input is data loading, no layer. Nodes become the layers and,
with the edges, the dataflow graph: a node's backward pass follows those of the nodes that read it.

Complexity: O(nodes · log nodes + edges).
Source: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019,
and the format of its published profiles.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256

from planner.model.errors import InvalidInputError
from planner.model.graphs import cycle_of, stable_order
from planner.model.layers import Layer, chain_blocks, graph_of_layers
from planner.model.profiles import Profile, Provenance
from planner.model.validation import MAX_VALUE, shown

_FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")


@dataclass(frozen=True, slots=True)
class _Node:
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


def read_pipedream(
    data: bytes, *, name: str, source: str, batch_size: int | None = None
) -> tuple[Profile, tuple[str, ...]]:
    """Return the profile in a PipeDream graph file, and warnings about rows that are left out.

    Parameters
    ----------
    data : bytes
        Contents of the file, UTF-8.
    name : str
        Name of the model.
    source : str
        Origin of the file; kept in the profile with the hash of `data`.
    batch_size : int, optional
        Samples of one iteration; the file does not say.

    Raises
    ------
    InvalidInputError
        If the text is no such graph; the path is the line.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError("", f"not UTF-8: {error.reason} at byte {error.start}") from None
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
    for producer, consumer, number in edges:
        for end in (producer, consumer):
            if end not in nodes:
                raise InvalidInputError(
                    f"line {number}", f"an edge names {shown(end)}, no such row"
                )
    inputs = {node.name for node in nodes.values() if node.operation == "Input"}
    links = [
        (producer, consumer) for producer, consumer, _ in edges if not inputs & {producer, consumer}
    ]
    # Among rows that may come next, that of the smallest number does: the order of creation.
    names = sorted((name for name in nodes if name not in inputs), key=lambda n: (_number(n), n))
    if not names:
        raise InvalidInputError("", "expected at least one layer, found none")
    place_of = {name: place for place, name in enumerate(names)}
    needed: list[list[int]] = [[] for _ in names]
    for producer, consumer in dict.fromkeys(links):
        needed[place_of[consumer]].append(place_of[producer])
    sequence = stable_order(needed)
    if len(sequence) < len(names):
        cycle = [names[place] for place in cycle_of(needed, sequence)]
        raise InvalidInputError("", f"the edges form a cycle: {' -> '.join([*cycle, cycle[0]])}")
    rows = [nodes[names[place]] for place in sequence]
    position = {row.name: place for place, row in enumerate(rows)}
    steps = [(position[producer], position[consumer]) for producer, consumer in links]
    layers = tuple(
        Layer(
            name=f"{row.name} {row.kind}",
            forward_ns=row.forward_ns,
            backward_ns=row.backward_ns,
            parameter_bytes=row.parameter_bytes,
            activation_bytes=row.activation_bytes,
            block=block,
        )
        for row, block in zip(rows, chain_blocks(len(rows), steps), strict=True)
    )
    warnings = tuple(
        f"line {node.line}: {node.name} is data loading, not a layer: left out "
        f"({node.forward_ns / 1e6:g} ms)"
        for node in nodes.values()
        if node.name in inputs
    )
    return Profile(
        name=name,
        layers=layers,
        provenance=Provenance(
            kind="imported",
            source=f"PipeDream profiler graph {source}",
            notes=(f"sha256 of the file: {sha256(data).hexdigest()}", *warnings),
        ),
        batch_size=batch_size,
        graph=graph_of_layers(layers, steps) if any(row.parameter_bytes for row in rows) else None,
    ), warnings


def _node(line: str, number: int) -> _Node:
    parts = line.split(" -- ")
    path = f"line {number}"
    if len(parts) != 3:
        raise InvalidInputError(
            path, f"expected 'node -- operation -- measurements', got {shown(line)}"
        )
    fields = dict(re.findall(r"(\w+)=(\[[^\]]*\]|[^,\s]+)", parts[2]))
    missing = [field for field in _FIELDS if field not in fields]
    if missing:
        raise InvalidInputError(path, f"missing {', '.join(missing)}")
    forward, backward, activation, parameters = (
        _amount(fields[field], f"{path}, {field}", scale)
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


def _number(name: str) -> int:
    digits = re.sub(r"\D", "", name)
    return int(digits[:18]) if digits else 0
