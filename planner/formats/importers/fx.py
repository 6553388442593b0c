"""FX graphs with collectives, as `planner.profiling.fx` writes them, as problems of `overlap`.

Placeholders become tensors that exist from the start, outputs tensors that stay to the end; all
other nodes are issued. Placeholders that may be parameters stay too, as the caller keeps them. The
input of a collective is held until its wait, as the transfer reads it; that of a merged one until
it is packed.

Complexity: O(nodes + arguments).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from planner.families.overlap import Collective, Kind, Node, Problem, Tensor
from planner.jsonio.graphs import FxDocument, FxNode
from planner.model.errors import InvalidInputError
from planner.model.validation import shown

_NOT_ISSUED = ("placeholder", "get_attr", "output")

Freed = Literal["named", "all", "none"]
"""Inputs of a graph that are freed after their last reader.

"named": those whose names tell that they are no parameters. "all": all but `primals_1` and the
like, which are parameters. "none": no input."""

_UNTOLD = re.compile(r"arg\d+_\d+")
"""Names that tracing without AOTAutograd gives to all inputs, parameters or not."""


def problem_of(document: FxDocument, freed: Freed = "named") -> Problem:
    """Return the problem of one rank's graph, without a memory limit.

    Every collective needs exactly one wait. `freed` says which inputs are freed.
    """
    place_of: dict[str, int] = {}
    for place, node in enumerate(document.nodes):
        if node.name in place_of:
            raise InvalidInputError(f"nodes[{place}].name", f"{shown(node.name)} is there twice")
        place_of[node.name] = place
    for node in document.nodes:
        _check_node(node, place_of)
    issued = [node for node in document.nodes if node.op not in _NOT_ISSUED]
    number = {node.name: place for place, node in enumerate(issued)}
    kinds, collectives, starter = _collectives(document, issued, number, place_of)
    nodes = [
        Node(
            node.name,
            tuple(
                number[name]
                for name in dict.fromkeys((*node.inputs, *node.after))
                if name in number
            ),
            node.duration_ns or 0,
        )
        for node in issued
    ]
    tensors, inputs = _tensors(document, number, starter, freed)
    collectives = [replace(it, input_tensor=inputs.get(it.start)) for it in collectives]
    return Problem(nodes=nodes, kinds=kinds, collectives=collectives, tensors=tensors)


def _check_node(node: FxNode, place_of: Mapping[str, int]) -> None:
    path = f"nodes[{place_of[node.name]}]"
    for field in ("inputs", "after"):
        for number, name in enumerate(getattr(node, field)):
            if name not in place_of:
                raise InvalidInputError(
                    f"{path}.{field}[{number}]", f"expected a node of the graph, got {shown(name)}"
                )
    computes = not (node.op in _NOT_ISSUED or node.waits or node.collective)
    if computes and node.duration_ns is None:
        raise InvalidInputError(f"{path}.duration_ns", f"missing, of {shown(node.name)}")


def _collectives(
    document: FxDocument,
    ordered: Sequence[FxNode],
    number: Mapping[str, int],
    place_of: Mapping[str, int],
) -> tuple[list[Kind], list[Collective], dict[str, str]]:
    kinds: dict[str, int] = {}
    made: list[Kind] = []
    waits: dict[str, str] = {}
    starting = {node.name for node in ordered if node.collective}
    for node in ordered:
        if node.waits:
            started = [name for name in node.inputs if name in starting]
            path = f"nodes[{place_of[node.name]}].inputs"
            if len(started) != 1:
                raise InvalidInputError(path, f"{node.name} waits for no collective of the graph")
            if started[0] in waits:
                raise InvalidInputError(path, f"{started[0]} is waited for twice")
            waits[started[0]] = node.name
    collectives = []
    for node in ordered:
        it = node.collective
        if it is None:
            continue
        path = f"nodes[{place_of[node.name]}]"
        if node.name not in waits:
            raise InvalidInputError(f"{path}.collective", f"nothing waits for {node.name}")
        key = f"{it.kind}@{it.group}"
        if key not in document.times:
            raise InvalidInputError("times", f"missing: {shown(key)}, of {node.name}")
        if key not in kinds:
            kinds[key] = len(made)
            made.append(Kind(it.kind, it.group, document.times[key], it.mergeable))
        ends = number[node.name], number[waits[node.name]]
        packing = it.pack_ns, it.unpack_ns, it.pack_bytes, it.unpack_bytes
        collectives.append(Collective(*ends, kinds[key], it.size_bytes, *packing))
    return made, collectives, waits


def _tensors(
    document: FxDocument,
    number: Mapping[str, int],
    waits: Mapping[str, str],
    freed: Freed,
) -> tuple[list[Tensor], dict[int, int]]:
    """Return the tensors, and by start of a collective the tensor that its transfer reads."""
    size: dict[int, int] = {}
    producer: dict[int, int | None] = {}
    readers: dict[int, list[int]] = {}
    kept: set[int] = set()
    inputs: dict[int, int] = {}
    held = {
        node.name: (*node.storages, *(key for key, _ in node.allocates)) for node in document.nodes
    }
    for node in document.nodes:
        for key, amount in node.allocates:
            size[key] = amount
            producer[key] = number.get(node.name)
            readers[key] = []
            if node.kept or (node.op == "placeholder" and not _is_freed(node.name, freed)):
                kept.add(key)
        read = {key for name in node.inputs for key in held[name] if key in size}
        if node.op == "output":
            kept |= read
            continue
        users = [node.name]
        if node.name in waits:
            if len(read) == 1:
                inputs[number[node.name]] = next(iter(read))
            else:
                users.append(waits[node.name])
        for key in read:
            readers[key] += [number[user] for user in users if user in number]
        for key in node.storages:  # a tensor that is only passed on is in use as well
            if key in readers and node.name in number and number[node.name] != producer[key]:
                readers[key].append(number[node.name])
    listed = [key for key in size if size[key]]
    place = {key: number for number, key in enumerate(listed)}
    tensors = [
        Tensor(size[key], producer[key], tuple(dict.fromkeys(readers[key])), key in kept)
        for key in listed
    ]
    return tensors, {start: place[key] for start, key in inputs.items() if key in place}


def _is_freed(name: str, freed: Freed) -> bool:
    """Return whether an input that is no known parameter is freed after its last reader."""
    return freed == "all" or (freed == "named" and _UNTOLD.fullmatch(name) is None)
