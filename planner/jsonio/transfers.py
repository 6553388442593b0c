"""Transfers and ops in answers about gradients and iterations: documents, timelines, checks."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from planner.jsonio.types import Moment, PositiveSize, Size, says
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Phase
from planner.model.layers import module_range
from planner.model.validation import check_count, check_same, shown
from planner.solving.timeline import Interval, Mark, Timeline, Window
from planner.solving.timeline import Kind as Drawn
from planner.solving.transfers import Kind, Part, Transfer

_SHOWN = 60
"""Most characters of the parameter names in a transfer's label."""

Names = Annotated[tuple[str, ...], Meta(min_length=1)]
ParameterBytes = Annotated[
    dict[str, Size], says("bytes of every gradient: together, the transfers' parts")
]


class OpTimes(Struct, frozen=True, kw_only=True):
    """When one op runs."""

    op: str
    phase: Phase = field(name="pass")
    start_ns: Moment
    end_ns: Moment


class TransferDocument(Struct, frozen=True, kw_only=True):
    """The data of a transfer, and its times, which count from the start of the backward pass."""

    parameters: Names
    bytes: PositiveSize
    ready_ns: Moment
    start_ns: Moment
    startup_end_ns: Moment
    end_ns: Moment
    due_ns: Moment
    part: Annotated[
        dict[str, tuple[Size, Size]] | UnsetType,
        says("[first byte, byte after the last] of parameters sent in parts"),
    ] = UNSET


def op_times(
    graph: Graph, indices: Sequence[int], spans: Sequence[tuple[int, int]]
) -> tuple[OpTimes, ...]:
    """Return the times of ops, given their indices and (start, end) spans (ns)."""
    return tuple(
        OpTimes(op=graph.ops[index].name, phase=graph.ops[index].phase, start_ns=start, end_ns=end)
        for index, (start, end) in zip(indices, spans, strict=True)
    )


def sent(
    parts: Iterable[tuple[int, int, int]], names: Sequence[str], sizes: Sequence[int]
) -> dict[str, Any]:
    """Return the fields `parameters` and `part` of a transfer.

    Each of `parts` is a parameter's index, first byte, and byte after the last.
    """
    carries: dict[str, None] = {}
    cut: dict[str, tuple[int, int]] = {}
    for index, start, stop in parts:
        name = names[index]
        carries[name] = None
        if stop - start < sizes[index]:
            first, last = cut.get(name, (start, stop))
            cut[name] = (min(first, start), max(last, stop))
    return {"parameters": tuple(carries), "part": cut or UNSET}


def _carried(transfer: TransferDocument) -> str:
    """Return a short text that names a transfer's parameters."""
    part = {} if transfer.part is UNSET else transfer.part
    names = [
        f"{name} [{part[name][0]}, {part[name][1]})" if name in part else name
        for name in transfer.parameters
    ]
    if len(names) > 1:
        names = list(transfer.parameters)
    return module_range(names, _SHOWN)


def timeline_of(
    schedule: Sequence[OpTimes],
    transfers: Sequence[TransferDocument],
    kinds: Sequence[Drawn],
    backward_ns: int,
) -> Timeline:
    """Return the timeline of ops and transfers; `kinds` has the kind of each transfer."""
    intervals = [
        Interval("computation", row.start_ns, row.end_ns, row.phase, -1, row.op) for row in schedule
    ]
    windows = []
    for number, (transfer, does) in enumerate(zip(transfers, kinds, strict=True)):
        label = f"{does.replace('_', '-')} {number + 1}: {_carried(transfer)}"
        parts: tuple[tuple[Drawn, int, int], ...] = (
            ("startup", transfer.start_ns, transfer.startup_end_ns),
            (does, transfer.startup_end_ns, transfer.end_ns),
        )
        for kind, start, end in parts:
            intervals.append(Interval("network", start, end, kind, number, label))
        times = transfer.ready_ns, transfer.start_ns, transfer.end_ns, transfer.due_ns
        windows.append(Window(number, *times, label, does, transfer.parameters, transfer.bytes))
    mark = Mark(backward_ns, "end of the backward pass")
    return Timeline(("computation", "network"), tuple(intervals), tuple(windows), (mark,))


# ---
# Check plans in answers that are read again: times in order, and transfers as large as their parts.
#
# A plan may come from an edited file. Before it is drawn, exported or run, its times must be those
# of resources that do one thing at a time. The family checks that its transfers are complete. No
# duration is priced again here: the family's `evaluate` does so, given the problem.
#
# Complexity: O(rows). Source: own.

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


def typed_transfers(
    name: str,
    rows: Sequence[TransferDocument],
    sizes: Mapping[str, int],
    pulled: Mapping[str, int] | None = None,
) -> list[Transfer]:
    """Return the transfers of an answer, each as large as its parts.

    `sizes` are the bytes of each parameter; `pulled` those of pulls, if they differ.
    """
    place = {key: number for number, key in enumerate(sizes)}
    transfers = []
    for path, row in placed(name, rows):
        kind: Kind = getattr(row, "kind", "all_reduce")
        sent = pulled if pulled is not None and kind == "pull" else sizes
        part = {} if row.part is UNSET else row.part
        for key in part:
            if key not in row.parameters:
                raise InvalidInputError(f"{path}.part.{key}", "no parameter of this transfer")
        if len(set(row.parameters)) < len(row.parameters):
            raise InvalidInputError(f"{path}.parameters", "a parameter is given twice")
        for spot, key in enumerate(row.parameters):
            if key not in sent:
                where = f"{path}.parameters[{spot}]"
                raise InvalidInputError(where, f"{shown(key)} is not in parameter_bytes")
        parts = (Part(place[key], *part.get(key, (0, sent[key]))) for key in row.parameters)
        transfers.append(Transfer(tuple(parts), kind=kind))
        check_same(row.bytes, transfers[-1].size_bytes, f"{path}.bytes")
    return transfers
