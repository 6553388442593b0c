"""Check plans in answers that are read again: times in order, and every byte sent exactly once.

A plan may come from an edited file. Before it is drawn, exported or run, its times must be those of
resources that do one thing at a time, and its transfers must be complete. Durations are not priced
again: that is what `evaluate` of the family does, given the problem.

Complexity: O(rows), and O(parts · log parts) for the bytes sent. Source: own.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import UNSET

from planner.jsonio.transfers import OpTimes, TransferDocument
from planner.model.errors import InvalidInputError
from planner.model.validation import check_count, check_same, shown

Span = tuple[int, int, int]
"""Start and stop (bytes) of a part, and the index of the transfer that carries it."""

Rows = list[tuple[str, Any]]
"""Rows of an answer, each with its path."""


def placed(name: str, rows: Iterable[Any]) -> Rows:
    """Return the rows of a field with their paths."""
    return [(f"{name}[{place}]", row) for place, row in enumerate(rows)]


def check_order(rows: Rows, *fields: str) -> None:
    """Check that the times in these fields do not decrease within each row."""
    for path, row in rows:
        for earlier, later in pairwise(fields):
            _check_least(f"{path}.{later}", getattr(row, later), getattr(row, earlier))


def check_serial(rows: Rows, start: str = "start_ns", end: str = "end_ns") -> None:
    """Check that no row starts before the previous one ends."""
    for (_, earlier), (path, later) in pairwise(rows):
        _check_least(f"{path}.{start}", getattr(later, start), getattr(earlier, end))


def _check_least(path: str, value: int, least: int) -> None:
    if value < least:
        raise InvalidInputError(path, f"expected an integer >= {least}, got {value}")


def check_iteration(
    name: str,
    transfers: Sequence[TransferDocument],
    schedule: Sequence[OpTimes],
    op_order: Sequence[str],
    iteration_ns: int,
) -> None:
    """Check the ops and transfers of an iteration; `name` is the field of the transfers."""
    check_count(schedule, len(op_order), "schedule", "op_order")
    seen: set[str] = set()
    for place, (row, op) in enumerate(zip(schedule, op_order, strict=True)):
        check_same(row.op, op, f"schedule[{place}].op")
        if op in seen:
            raise InvalidInputError(f"op_order[{place}]", f"{shown(op)} given twice")
        seen.add(op)
    ops, sent = placed("schedule", schedule), placed(name, transfers)
    check_order(ops, "start_ns", "end_ns")
    check_serial(sorted(ops, key=lambda item: item[1].phase == "forward"))
    check_order(sent, "ready_ns", "start_ns", "startup_end_ns", "end_ns")
    check_serial(sent)
    check_same(iteration_ns, max(row.end_ns for _, row in ops + sent), "iteration_ns")


def check_parts(
    name: str,
    transfers: Sequence[tuple[int, TransferDocument]],
    sizes: Mapping[str, int] | None,
) -> dict[str, list[Span]]:
    """Return the parts of each parameter, in order, each with its transfer.

    Raises InvalidInputError unless every byte of every parameter is sent exactly once, and each
    transfer is as large as its parts. `transfers` are those of one direction, with their positions.
    If `sizes` (bytes) are unknown, the ends of parameters are not checked, and a parameter sent
    whole stops at -1.
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
        size = 0
        for place, key in enumerate(transfer.parameters):
            if sizes is not None and key not in sizes:
                raise InvalidInputError(
                    f"{path}.parameters[{place}]", f"{shown(key)} is not in parameter_bytes"
                )
            first, stop = part.get(key, (0, -1 if sizes is None else sizes[key]))
            spans.setdefault(key, []).append((first, stop, number))
            size += stop - first
        if sizes is not None or len(part) == len(transfer.parameters):
            check_same(transfer.bytes, size, f"{path}.bytes")
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
