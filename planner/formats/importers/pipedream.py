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
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from heapq import heapify, heappop, heappush

from planner.formats.importers.kept import kept_bytes
from planner.formats.importers.pipedream_rows import Node, doubts
from planner.formats.importers.pipedream_shapes import shapes_of
from planner.model.errors import InvalidInputError
from planner.model.layers import Layer, chain_blocks, graph_of_layers
from planner.model.profiles import Profile, Provenance
from planner.model.validation import MAX_VALUE, shown

_FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")


def read_pipedream(
    data: bytes, *, name: str, source: str, batch_size: int | None = None
) -> tuple[Profile, tuple[str, ...]]:
    """Return the profile in a PipeDream graph file, and warnings about implausible rows.

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
    nodes: dict[str, Node] = {}
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
    order = _execution_order([name for name in nodes if name not in inputs], links)
    if not order:
        raise InvalidInputError("", "expected at least one layer, found none")
    position = {node: index for index, node in enumerate(order)}
    steps = [(position[producer], position[consumer]) for producer, consumer in links]
    kept = kept_bytes(
        [nodes[node].kind for node in order],
        [nodes[node].activation_bytes for node in order],
        steps,
    )
    reads: dict[int, list[int]] = {}
    for source_place, place in steps:
        reads.setdefault(place, []).append(source_place)
    shapes = shapes_of([nodes[node] for node in order], reads, batch_size)
    layers = tuple(
        Layer(
            name=f"{node} {nodes[node].kind}",
            forward_ns=nodes[node].forward_ns,
            backward_ns=nodes[node].backward_ns,
            parameter_bytes=nodes[node].parameter_bytes,
            activation_bytes=nodes[node].activation_bytes,
            block=block,
            kept_bytes=keeps,
            **known,
        )
        for node, block, keeps, known in zip(
            order, chain_blocks(len(order), steps), kept, shapes, strict=True
        )
    )
    weighted = any(layer.parameter_bytes for layer in layers)
    warnings = [
        f"line {node.line}: {node.name} is data loading, not a layer: left out "
        f"({node.forward_ns / 1e6:g} ms)"
        for node in nodes.values()
        if node.name in inputs
    ]
    warnings += doubts([nodes[name] for name in order], steps)
    return Profile(
        name=name,
        layers=layers,
        provenance=Provenance(
            kind="imported",
            source=f"PipeDream profiler graph {source}",
            notes=(f"sha256 of the file: {sha256(data).hexdigest()}", *warnings),
        ),
        batch_size=batch_size,
        graph=graph_of_layers(layers, steps) if weighted else None,
    ), tuple(warnings)


def _node(line: str, number: int) -> Node:
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
    return Node(
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
    """Return a topological order; ties go to the smallest node number, the order of creation."""
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(names, ()))
    for producer, consumer in links:
        sorter.add(consumer, producer)
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
