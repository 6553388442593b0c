"""Gradient plans as Chakra execution traces, which ASTRA-sim and other simulators replay.

Method: one trace per rank, for one iteration from the start of a backward pass to the end of the
next forward pass. An op is a compute node with its time. A transfer is an all-reduce node, or
`depth` at once; or a rank's messages (below) with a node of no time as
their end. ``data_deps`` are the only dependencies that Chakra's feeder obeys: an op waits for the
ops it reads, the op before it and the transfers of its parameters; a transfer for the ops that
update its gradients and the transfer before it. Times are whole microseconds; each op ends at the
rounded sum of the times up to it, so the total is off by less than one.

Complexity: O(ops + dependencies + transfers · parameters). Source: mlcommons/chakra 1.0.0.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from msgspec import UNSET

from planner.families.collectives.layout import Layout
from planner.families.collectives.program import Message, Program, layouts_of, sizes_of
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.transfers import OpTimes, TransferDocument
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph
from planner.model.validation import shown
from planner.programs import Answer, read_plan
from planner.programs.collectives import programs_of_transfers

# ---
# The wire format of Chakra's execution traces: a file's version, and its nodes.
#
# Source: et_def.proto of mlcommons/chakra 1.0.0 (schema version 0.0.4): a file is a GlobalMetadata
# and Nodes, each preceded by its length. Attributes have the types that Chakra's feeder reads.
# Complexity: linear in the bytes.

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""Values of the enumeration NodeType."""

_VERSION = "0.0.4"
_ATTRIBUTES = {"comm_type": 9, "comm_size": 9, "comm_src": 7, "comm_dst": 7, "comm_tag": 7}
"""The field number of each attribute's value: int64 (9) or int32 (7)."""


def trace(nodes: Iterable[bytes]) -> bytes:
    """Return a file of nodes."""
    return b"".join(_sized(message) for message in (_text(1, _VERSION), *nodes))


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
        message += _bytes(10, _text(1, key) + _integer(_ATTRIBUTES[key], value))
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


# ---
# A collective program as a rank's sends and receives in a Chakra execution trace.
#
# Problem: a trace with collectives leaves the algorithm to the simulator. Write the planned one,
# message by message. Method: each message with bytes is a send node and a receive node, matched by
# a tag: its number among the messages between the two ranks. A send waits for the receives that
# last wrote its data, and for all that add to it; receives wait for nothing of the program. A
# part's send also waits for the same send of the part before it, as on one connection. Additions
# take no time; the simulator chooses NICs. Complexity: linear in the messages times their chunks.
# Source: Chakra's feeder (mlcommons/chakra 1.0.0), whose attributes these are.


class MessageNode(NamedTuple):
    """One end of a message: `kind` is `SEND` or `RECEIVE`, `needs` are earlier nodes."""

    name: str
    kind: int
    needs: tuple[int, ...]
    attributes: dict[str, int]


def message_nodes(
    program: Program,
    rank: int,
    layouts: Sequence[Layout],
    tags: Counter[tuple[int, int]] | None = None,
) -> list[MessageNode]:
    """Return a rank's sends and receives in the order of steps, sends first.

    `layouts` are those of the parts, each one step behind the one before. `tags` counts the earlier
    messages between each two ranks, and is updated; all ranks have to begin with the same.
    """
    tags = Counter() if tags is None else tags
    written: dict[tuple[int, int, int], list[int]] = defaultdict(list)  # by part, buffer, chunk
    sent: dict[Message, int] = {}
    nodes: list[MessageNode] = []
    both = [*program.sends(rank), *program.receives(rank)]
    every = [(part, message) for part in range(len(layouts)) for message in both]

    def order(pair: tuple[int, Message]) -> tuple[int, int, bool, Message]:
        part, message = pair  # sends of a step precede its receives
        return message.step + part, part, message.sender != rank, message

    for part, message in sorted(every, key=order):
        size = layouts[part].span(message.first, message.stop - message.first)
        if not size:
            continue
        sends = message.sender == rank
        ends = message.sender, message.receiver
        buffer = message.source if sends else message.target
        cells = [(part, buffer, chunk) for chunk in range(message.first, message.stop)]
        needs = set[int]()
        if sends:
            needs = {number for cell in cells for number in written.get(cell, ())}
            needs |= {sent[message]} if message in sent else set()
            sent[message] = len(nodes)
        else:
            for cell in cells:
                written[cell] = [*(written[cell] if message.adds else ()), len(nodes)]
        word = "send" if sends else "receive"
        peer = f"to rank {message.receiver}" if sends else f"from rank {message.sender}"
        of = f" of part {part}" if len(layouts) > 1 else ""
        nodes.append(
            MessageNode(
                f"{word} chunks {message.first}…{message.stop - 1}{of} {peer}, step {message.step}",
                SEND if sends else RECEIVE,
                tuple(sorted(needs)),
                {
                    "comm_size": size,
                    "comm_src": message.sender,
                    "comm_dst": message.receiver,
                    "comm_tag": tags[ends],
                },
            )
        )
        tags[ends] += 1
    return nodes


def write_messages(program: Program, rank: int, layouts: Sequence[Layout]) -> bytes:
    """Return the trace of a rank that only runs a program once.

    Parameters
    ----------
    program : Program
        The program of all ranks.
    rank : int
        The rank whose trace is returned.
    layouts : sequence of Layout
        Chunk layouts of the parts: `planner.families.collectives.program.layouts_of`.
    """
    return trace(encoded(message_nodes(program, rank, layouts), 1, ()))


def encoded(nodes: Sequence[MessageNode], first: int, needs: Sequence[int]) -> list[bytes]:
    """Return the nodes, numbered from `first`; each also waits for the nodes in `needs`."""
    return [
        node(
            first + place,
            message.name,
            message.kind,
            (*needs, *(first + number for number in message.needs)),
            0,
            message.attributes,
        )
        for place, message in enumerate(nodes)
    ]


_ALL_REDUCE = 0  # value of the enumeration CollectiveCommType


def write_chakra(
    plan: bytes | Mapping[str, Any] | Answer,
    graph: Graph,
    rank: int | None = None,
    element_bytes: int = 1,
) -> bytes:
    """Return the execution trace of a rank.

    Parameters
    ----------
    plan : bytes or mapping or answer
        The plan, as JSON text, plain values or an answer.
    graph : Graph
        The graph of the profile that was planned for.
    rank : int, optional
        The rank whose sends and receives the trace lists in each transfer, by the program that the
        transfer names. Without it transfers are collectives, and all ranks have the same trace.
    element_bytes : int
        Messages and parts are whole multiples of this size, if all transfers are.

    Raises
    ------
    InvalidInputError
        If it is no plan of `caramel`, or of another graph.
    NotApplicableError
        If transfers are no all-reduces, or workers compute in different orders.
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
    elif (
        isinstance(answer, IterationAnswer)
        and answer.transfers is not UNSET
        and all(transfer.kind == "all_reduce" for transfer in answer.transfers)
    ):
        transfers = answer.transfers
        depths = [transfer.depth or 1 for transfer in answer.transfers]
    else:
        raise InvalidInputError(
            "problem",
            f"expected a plan of caramel, or a replicated one of iteration, got {answer.problem}",
        )
    op_order = () if answer.op_order is UNSET else answer.op_order
    schedule = () if answer.schedule is UNSET else answer.schedule
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
    if rank is None:
        parts: Iterable[list[MessageNode]] = (
            _at_once(size // width, width, depth) for size, depth in zip(sizes, depths, strict=True)
        )
    else:
        programs = programs_of_transfers(answer)
        ranks = programs[0].ranks
        if not 0 <= rank < ranks:
            raise InvalidInputError("rank", f"expected an integer < {ranks}, got {rank}")
        tags: Counter[tuple[int, int]] = Counter()
        parts = (
            message_nodes(program, rank, layouts_of(program, size // width, width, depth), tags)
            for program, size, depth in zip(programs, sizes, depths, strict=True)
        )
    sent: list[bytes] = []
    first = 1 + len(waits)
    for place, (number, several) in enumerate(zip(transfer_ids, parts, strict=True), start=1):
        name, waited = f"transfer {place}", waits[number]
        if rank is None and len(several) == 1:
            sent.append(node(number, name, COLLECTIVE, waited, 0, several[0].attributes))
            continue
        sent += encoded(several, first, sorted(waited))
        all_sent = range(first, first + len(several))
        sent.append(node(number, name, COMPUTE, {*waited, *all_sent}, 0, {}))
        first += len(several)
    nodes[len(backward) : len(backward)] = sent
    return trace(nodes)


def _at_once(elements: int, width: int, depth: int) -> list[MessageNode]:
    """Return the all-reduces of the parts of a transfer."""
    return [
        MessageNode(
            f"part {part}", COLLECTIVE, (), {"comm_type": _ALL_REDUCE, "comm_size": size * width}
        )
        for part, size in enumerate(sizes_of(elements, depth))
    ]


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
