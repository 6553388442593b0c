"""Validate the schedules in answers: times in order, and every byte sent exactly once.

A plan may come from an edited file. Before it is drawn, exported or run, it must be complete and
its times must be in order. Whether they are those of the plan takes the request to tell
(`planner.jsonio.rereading`).

Complexity: O(ops + transfers), and O(parts · log parts) for the bytes sent. Source: own.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

from msgspec import UNSET

from planner.jsonio.transfers import OpTimes, TransferDocument
from planner.model.errors import InvalidInputError
from planner.model.validation import check_count, check_same, shown

__all__ = ["check_parts", "check_schedule", "check_sizes", "in_passes"]

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


class Scheduled(Protocol):
    """An answer with a schedule of ops."""

    @property
    def schedule(self) -> Any: ...
    @property
    def op_order(self) -> Any: ...
    @property
    def iteration_ns(self) -> Any: ...
    @property
    def backward_ns(self) -> Any: ...


def check_schedule(name: str, transfers: Sequence[TransferDocument], answer: Scheduled) -> None:
    """Check that ops and transfers are in order, and end within the iteration.

    `name` is the field of the transfers, for error paths. Raises InvalidInputError with the path of
    the first wrong time.
    """
    backward, forward = in_passes(answer.schedule, answer.op_order)
    check_same(answer.backward_ns, backward[-1][1].end_ns if backward else 0, "backward_ns")
    ends = [(f"schedule[{place}].end_ns", row.end_ns) for place, row in (*backward, *forward)]
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
        ends.append((f"{path}.end_ns", free))
    for path, end in ends:
        if end > answer.iteration_ns:
            raise InvalidInputError(path, f"after the end of the iteration ({answer.iteration_ns})")


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
