"""Gradient plans as Chakra execution traces, which ASTRA-sim and other simulators replay.

Method: one trace per rank, for one iteration from the start of a backward pass to the end of the
next forward pass. An op is a compute node with its time. A transfer is an all-reduce node, or
`depth` at once; or a rank's messages (`planner.formats.chakra_messages`) with a node of no time as
their end. ``data_deps`` are the only dependencies that Chakra's feeder obeys: an op waits for the
ops it reads, the op before it and the transfers of its parameters; a transfer for the ops that
update its gradients and the transfer before it. Times are whole microseconds; each op ends at the
rounded sum of the times up to it, so the total is off by less than one.

Complexity: O(ops + dependencies + transfers · parameters). Source: mlcommons/chakra 1.0.0.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from msgspec import UNSET

from planner.collectives.parts import layouts_of, sizes_of
from planner.errors import InvalidInputError, NotApplicableError
from planner.formats.chakra_messages import MessageNode, encoded, message_nodes
from planner.formats.chakra_nodes import COLLECTIVE, COMPUTE, node, trace
from planner.graphs import Graph
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.transfers import OpTimes, TransferDocument
from planner.programs import Answer, read_plan
from planner.programs.collectives import programs_of_transfers
from planner.validation import shown

__all__ = ["write_chakra"]

_ALL_REDUCE = 0
"""Value of the enumeration CollectiveCommType."""


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
    elif isinstance(answer, IterationAnswer) and _is_replicated(answer):
        rows = () if answer.transfers is UNSET else answer.transfers
        transfers, depths = rows, [row.depth or 1 for row in rows]
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


def _is_replicated(answer: IterationAnswer) -> bool:
    return answer.transfers is not UNSET and all(
        transfer.kind == "all_reduce" for transfer in answer.transfers
    )


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
