"""Gradient plans as Chakra execution traces, which ASTRA-sim and other simulators replay.

Method: one trace per rank, for one iteration from the start of a backward pass to the end of the
next forward pass. An op is a compute node with its time. A transfer is an all-reduce node, or
`depth` at once with a node of no time as their end. ``data_deps`` are the only dependencies that
Chakra's feeder obeys: an op waits for the ops it reads, the op before it and the transfers of its
parameters; a transfer for the ops that update its gradients and the transfer before it. Times are
whole microseconds; each op ends at the rounded sum of the times up to it, so the total is off by
less than one.

Complexity: O(ops + dependencies + transfers · parameters). Source: mlcommons/chakra 1.0.0.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from planner.families.collectives.program import sizes_of
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.transfers import OpTimes, TransferDocument
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph
from planner.model.validation import shown
from planner.programs import Answer, read_plan

# ---
# The wire format of Chakra's execution traces: a file's version, and its nodes.
#
# Source: et_def.proto of mlcommons/chakra 1.0.0 (schema version 0.0.4): a file is a GlobalMetadata
# and Nodes, each preceded by its length. Attributes have the types that Chakra's feeder reads.
# Complexity: linear in the bytes.

COMPUTE, COLLECTIVE = 4, 7
"""Values of the enumeration NodeType."""

_VERSION = "0.0.4"
_INT64 = 9
"""The field number of an attribute's value."""


def node(
    number: int,
    name: str,
    kind: int,
    waits: Iterable[int],
    micros: int,
    attributes: Mapping[str, int],
) -> bytes:
    """Return a Node with its dependencies `waits`, its time and attributes."""
    message = _integer(1, number) + _text(2, name) + _integer(3, kind)
    needs = b"".join(map(_varint, sorted(waits)))
    message += _bytes(5, needs) if needs else b""
    message += _integer(7, micros) if micros else b""
    message += _bytes(10, _text(1, "is_cpu_op") + _integer(27, 0))
    for key, value in attributes.items():
        message += _bytes(10, _text(1, key) + _integer(_INT64, value))
    return message


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _sized(value)


def _sized(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Return a number >= 0 in groups of seven bits, the lowest first."""
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


_ALL_REDUCE = 0  # value of the enumeration CollectiveCommType


def write_chakra(
    plan: bytes | Mapping[str, Any] | Answer,
    graph: Graph,
    element_bytes: int = 1,
) -> bytes:
    """Return the execution trace, which is the same for all ranks.

    `graph` is that of the profile that was planned for. Parts are whole multiples of
    `element_bytes`, if all transfers are. A plan of another graph is an `InvalidInputError`; one
    whose transfers are no all-reduces, or whose workers compute in different orders, a
    `NotApplicableError`.
    """
    answer = read_plan(plan)
    if isinstance(answer, CaramelAnswer):
        transfers: Sequence[TransferDocument] = answer.groups
        depths = [group.depth for group in answer.groups]
        if answer.traffic != 1:
            raise NotApplicableError("traffic", "the plan's transfers are no all-reduces")
        if answer.workers:
            raise NotApplicableError(
                "workers", "each worker draws its own op order, and the plan has the first's only"
            )
    elif isinstance(answer, IterationAnswer) and all(
        transfer.kind == "all_reduce" for transfer in answer.transfers
    ):
        transfers = answer.transfers
        depths = [transfer.depth or 1 for transfer in answer.transfers]
    else:
        raise InvalidInputError(
            "problem",
            f"expected a plan of caramel, or a replicated one of iteration, got {answer.problem}",
        )
    op_order, schedule = answer.op_order, answer.schedule
    _check(op_order, schedule, transfers, graph)
    phases = {graph_op.name: graph_op.phase for graph_op in graph.ops}
    order = sorted(op_order, key=lambda name: phases[name] == "forward")  # stable
    backward = [name for name in order if phases[name] == "backward"]
    op_ids = {name: 1 + place for place, name in enumerate(backward)}
    transfer_ids = range(len(backward) + 1, len(backward) + 1 + len(transfers))
    for name in order[len(backward) :]:
        op_ids[name] = 1 + len(op_ids) + len(transfer_ids)
    waits: dict[int, set[int]] = {
        op_ids[graph_op.name]: {
            op_ids[need] for need in graph_op.after if phases[need] == graph_op.phase
        }
        for graph_op in graph.ops
    }
    waits |= {number: set() for number in transfer_ids}
    serial = [*pairwise(op_ids[name] for name in order), *pairwise(transfer_ids)]
    if answer.barrier and len(order) > len(backward):
        serial.append((transfer_ids[-1], op_ids[order[len(backward)]]))
    for before, behind in serial:
        waits[behind].add(before)
    parameters = {parameter.name: parameter for parameter in graph.parameters}
    for number, group in zip(transfer_ids, transfers, strict=True):
        for name in group.parameters:
            waits[number].update(op_ids[op] for op in parameters[name].updated_by)
            for op in parameters[name].read_by:
                waits[op_ids[op]].add(number)
    times = {row.op: row.end_ns - row.start_ns for row in schedule}
    ends = [(total + 500) // 1000 for total in accumulate(times[name] for name in order)]
    micros = dict(zip(order, (b - a for a, b in pairwise([0, *ends])), strict=True))
    nodes = [
        node(op_ids[name], name, COMPUTE, waits[op_ids[name]], micros[name], {}) for name in order
    ]
    sizes = [group.bytes for group in transfers]
    width = element_bytes if all(size % element_bytes == 0 for size in sizes) else 1
    sent: list[bytes] = []
    first = 1 + len(waits)
    for number, size, depth in zip(transfer_ids, sizes, depths, strict=True):
        name, waited = f"transfer {number - len(backward)}", waits[number]
        parts = [
            {"comm_type": _ALL_REDUCE, "comm_size": elements * width}
            for elements in sizes_of(size // width, depth)
        ]
        if len(parts) == 1:
            sent.append(node(number, name, COLLECTIVE, waited, 0, parts[0]))
            continue
        at_once = range(first, first + len(parts))
        sent += [
            node(place, f"part {part}", COLLECTIVE, waited, 0, known)
            for part, (place, known) in enumerate(zip(at_once, parts, strict=True))
        ]
        sent.append(node(number, name, COMPUTE, {*waited, *at_once}, 0, {}))
        first += len(parts)
    nodes[len(backward) : len(backward)] = sent
    return b"".join(_sized(message) for message in (_text(1, _VERSION), *nodes))


def _check(
    op_order: Sequence[str],
    schedule: Sequence[OpTimes],
    transfers: Sequence[TransferDocument],
    graph: Graph,
) -> None:
    expected = "expected the profile that was planned for"
    for ops in (op_order, [row.op for row in schedule]):
        if sorted(ops) != sorted(graph.position):
            odd = next(iter(set(ops) ^ set(graph.position)), ops[0])
            raise InvalidInputError("--profile", f"op {shown(odd)} is not once in both: {expected}")
    sent = {name for group in transfers for name in group.parameters}
    odd_names = sent ^ {parameter.name for parameter in graph.parameters}
    if odd_names:
        raise InvalidInputError(
            "--profile", f"parameter {shown(min(odd_names))} is not in both: {expected}"
        )
