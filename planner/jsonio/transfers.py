"""Transfers and ops in answers about gradients and iterations: documents and timelines."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from planner.jsonio.types import Moment, PositiveSize, Size, says
from planner.model.graphs import Graph, Phase
from planner.model.layers import module_range
from planner.solving.timeline import Interval, Kind, Mark, Timeline, Window

_SHOWN = 60
"""Characters for parameter names in a transfer's label."""

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
    """What a transfer carries, and when; times count from the start of the backward pass."""

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
    kinds: Sequence[Kind],
    backward_ns: int,
) -> Timeline:
    """Return the timeline of ops and transfers; `kinds` has the kind of each transfer."""
    intervals = [
        Interval("computation", row.start_ns, row.end_ns, row.phase, -1, row.op) for row in schedule
    ]
    windows = []
    for number, (transfer, does) in enumerate(zip(transfers, kinds, strict=True)):
        label = f"{does.replace('_', '-')} {number + 1}: {_carried(transfer)}"
        parts: tuple[tuple[Kind, int, int], ...] = (
            ("startup", transfer.start_ns, transfer.startup_end_ns),
            (does, transfer.startup_end_ns, transfer.end_ns),
        )
        for kind, start, end in parts:
            intervals.append(Interval("network", start, end, kind, number, label))
        times = transfer.ready_ns, transfer.start_ns, transfer.end_ns, transfer.due_ns
        windows.append(Window(number, *times, label, does, transfer.parameters, transfer.bytes))
    mark = Mark(backward_ns, "end of the backward pass")
    return Timeline(("computation", "network"), tuple(intervals), tuple(windows), (mark,))
