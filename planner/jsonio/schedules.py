"""Validate the schedules in answers: feasible times, and every byte sent exactly once.

A plan may come from an edited file. Before it is drawn, exported or run, it must be complete and
its times must be those of a schedule.

Method: read durations, release times of transfers and the ops that wait for them from the answer;
simulate them (`planner.solving.simulator`), and compare the times.

Complexity: O(ops + transfers), and O(parts · log parts) for the bytes sent. Source: own.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate, pairwise

from msgspec import UNSET

from planner.jsonio.transfers import OpTimes, TransferDocument
from planner.model.errors import InvalidInputError
from planner.model.validation import check_count, check_same, shown
from planner.solving.simulator import Iteration, TimedTransfer, simulate

Span = tuple[int, int, int]
"""Start and stop (bytes) of a part, and the index of the transfer that carries it."""


def in_passes(
    schedule: Sequence[OpTimes], op_order: Sequence[str]
) -> tuple[list[tuple[int, OpTimes]], list[tuple[int, OpTimes]]]:
    """Return the ops of the backward and of the forward pass, with their positions in the schedule.

    Raises InvalidInputError if the schedule does not hold each op once.
    """
    check_count(schedule, len(op_order), "schedule", "op_order")
    seen: set[str] = set()
    for place, (row, name) in enumerate(zip(schedule, op_order, strict=True)):
        if row.op != name:
            raise InvalidInputError(
                f"schedule[{place}].op", f"expected {shown(name)}, as in op_order"
            )
        if name in seen:
            raise InvalidInputError(f"op_order[{place}]", f"{shown(name)} given twice")
        seen.add(name)
        if row.end_ns < row.start_ns:
            raise InvalidInputError(
                f"schedule[{place}].end_ns", f"expected an integer >= {row.start_ns}"
            )
    rows = list(enumerate(schedule))
    backward = [item for item in rows if item[1].phase == "backward"]
    forward = [item for item in rows if item[1].phase == "forward"]
    for (_, earlier), (place, later) in pairwise([*backward, *forward]):
        if later.start_ns < earlier.end_ns:
            raise InvalidInputError(
                f"schedule[{place}].start_ns", f"{shown(later.op)} overlaps {shown(earlier.op)}"
            )
    return backward, forward


def simulated(
    name: str,
    transfers: Sequence[TransferDocument],
    schedule: Sequence[OpTimes],
    op_order: Sequence[str],
    *,
    barrier: bool,
) -> tuple[Iteration, int]:
    """Return the iteration that an answer describes, and its computation time (ns).

    `name` is the field of the transfers, for error paths. A transfer whose `kind` is ``push`` is
    waited for by no op. With `barrier`, the forward pass waits for all transfers. Raises
    InvalidInputError with the path of the first wrong time.
    """
    backward, forward = in_passes(schedule, op_order)
    backward_ns, forward_ns = (
        [row.end_ns - row.start_ns for _, row in rows] for rows in (backward, forward)
    )
    undisturbed = list(accumulate(forward_ns, initial=sum(backward_ns)))
    steps = []
    free = 0
    for number, transfer in enumerate(transfers):
        path = f"{name}[{number}]"
        for field, value, least in (
            ("start_ns", transfer.start_ns, max(transfer.ready_ns, free)),
            ("startup_end_ns", transfer.startup_end_ns, transfer.start_ns),
            ("end_ns", transfer.end_ns, transfer.startup_end_ns),
        ):
            if value < least:
                raise InvalidInputError(
                    f"{path}.{field}", f"expected an integer >= {least}, got {value}"
                )
        free = transfer.end_ns
        needed = len(forward)
        if barrier:
            if transfer.due_ns != undisturbed[0]:
                raise InvalidInputError(f"{path}.due_ns", "not the end of the backward pass")
        elif getattr(transfer, "kind", None) != "push":
            needed = _needed_by(path, transfer, forward, undisturbed)
        lasts = transfer.end_ns - transfer.start_ns
        steps.append(TimedTransfer(0, lasts, needed, not_before_ns=transfer.ready_ns))
    iteration = simulate(backward_ns, forward_ns, steps, barrier=barrier)
    for number, (transfer, span) in enumerate(zip(transfers, iteration.transfers, strict=True)):
        _same(f"{name}[{number}]", (transfer.start_ns, transfer.end_ns), span)
        if transfer.end_ns > iteration.end_ns:
            raise InvalidInputError(f"{name}[{number}].end_ns", "after the end of the iteration")
    for rows, spans in ((backward, iteration.backward), (forward, iteration.forward)):
        for (place, row), span in zip(rows, spans, strict=True):
            _same(f"schedule[{place}]", (row.start_ns, row.end_ns), span)
    return iteration, undisturbed[-1]


def _needed_by(
    path: str,
    transfer: TransferDocument,
    forward: Sequence[tuple[int, OpTimes]],
    undisturbed: Sequence[int],
) -> int:
    """Return the first forward op that can wait for a transfer.

    The op would start at the due time if the pass never waited, and starts after the transfer's
    end. Several ops may start at the due time if some take no time.
    """
    place = first = bisect_left(undisturbed, transfer.due_ns)
    while place < len(forward) and undisturbed[place] == transfer.due_ns:
        if forward[place][1].start_ns >= transfer.end_ns:
            return place
        place += 1
    if place == first:
        raise InvalidInputError(
            f"{path}.due_ns", "expected when an op of the forward pass would start"
        )
    name = shown(forward[place - 1][1].op)
    raise InvalidInputError(f"{path}.end_ns", f"after the start of {name}, which waits for it")


def _same(path: str, stated: tuple[int, int], right: tuple[int, int]) -> None:
    for field, value, expected in zip(("start_ns", "end_ns"), stated, right, strict=True):
        check_same(value, expected, f"{path}.{field}")


def check_startups(
    name: str, transfers: Sequence[TransferDocument], kinds: Sequence[Hashable]
) -> None:
    """Check that transfers of one kind have the same start-up, or end within it."""
    longest: dict[Hashable, int] = defaultdict(int)
    for transfer, kind in zip(transfers, kinds, strict=True):
        longest[kind] = max(longest[kind], transfer.startup_end_ns - transfer.start_ns)
    for number, (transfer, kind) in enumerate(zip(transfers, kinds, strict=True)):
        right = min(transfer.start_ns + longest[kind], transfer.end_ns)
        check_same(transfer.startup_end_ns, right, f"{name}[{number}].startup_end_ns")


def check_parts(
    name: str,
    transfers: Sequence[tuple[int, TransferDocument]],
    sizes: Mapping[str, int] | None,
) -> dict[str, list[Span]]:
    """Return the parts of each parameter, in order, each with its transfer.

    Raises InvalidInputError unless every byte of every parameter is sent exactly once. `transfers`
    are those of one direction, with their positions. If `sizes` (bytes) are unknown, the ends of
    parameters are not checked, and a parameter sent whole stops at -1.
    """
    spans: dict[str, list[Span]] = {}
    for number, transfer in transfers:
        path = f"{name}[{number}]"
        part = {} if transfer.part is UNSET else transfer.part
        for key, (first, stop) in part.items():
            if key not in transfer.parameters:
                raise InvalidInputError(f"{path}.part.{key}", "no parameter of this transfer")
            if first >= stop:
                raise InvalidInputError(f"{path}.part.{key}", "expected a part, got none")
        if len(set(transfer.parameters)) < len(transfer.parameters):
            raise InvalidInputError(f"{path}.parameters", "a parameter is given twice")
        for place, key in enumerate(transfer.parameters):
            if sizes is not None and key not in sizes:
                raise InvalidInputError(
                    f"{path}.parameters[{place}]", f"{shown(key)} is not in parameter_bytes"
                )
            whole = (0, -1 if sizes is None else sizes[key])
            spans.setdefault(key, []).append((*part.get(key, whole), number))
    for key, sent in spans.items():
        sent.sort()
        if sent[0][0]:
            raise InvalidInputError(name, f"bytes [0, {sent[0][0]}) of {shown(key)} are not sent")
        for (_, reached, number), (start, _, place) in pairwise(sent):
            if reached == -1 or start < reached:
                where = f"{name}[{max(number, place)}].parameters"
                raise InvalidInputError(where, f"{shown(key)} is sent twice")
            if start > reached:
                raise InvalidInputError(
                    name, f"bytes [{reached}, {start}) of {shown(key)} are not sent"
                )
    for key, size in (sizes or {}).items():
        if key not in spans:
            raise InvalidInputError(name, f"{shown(key)} is not sent")
        if spans[key][-1][1] != size:
            raise InvalidInputError(
                name, f"{shown(key)} has {size} bytes, {spans[key][-1][1]} are sent"
            )
    return spans


def check_sizes(
    name: str,
    transfers: Sequence[tuple[int, TransferDocument]],
    sizes: Mapping[str, int] | None,
) -> None:
    """Check that each transfer is as large as its parameters, where their sizes are known."""
    for number, transfer in transfers:
        part = {} if transfer.part is UNSET else transfer.part
        if sizes is None and not set(part).issuperset(transfer.parameters):
            continue
        size = sum(
            part[key][1] - part[key][0] if key in part else (sizes or {})[key]
            for key in transfer.parameters
        )
        check_same(transfer.bytes, size, f"{name}[{number}].bytes")
