"""Transfers in answers, of gradients or of whole iterations: what is said and drawn."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from planner.graphs import Phase
from planner.jsonio.types import Moment, PositiveSize, Size
from planner.timeline import Interval, Kind, Window

__all__ = ["Names", "OpTimes", "ParameterBytes", "TransferDocument", "carried", "drawn"]

MAX_SHOWN_PARAMETERS = 3
"""More parameters of a transfer are left out of its label."""

Names = Annotated[tuple[str, ...], Meta(min_length=1)]
ParameterBytes = Annotated[
    dict[str, Size], Meta(description="bytes of every gradient: together, the transfers' parts")
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
    part: (
        Annotated[
            dict[str, tuple[Size, Size]],
            Meta(description="[first byte, byte after the last] of parameters sent in parts"),
        ]
        | UnsetType
    ) = UNSET


def carried(transfer: TransferDocument) -> str:
    """Return what a transfer carries, in a few words."""
    part = {} if transfer.part is UNSET else transfer.part
    names = [
        f"{name} [{part[name][0]}, {part[name][1]})" if name in part else name
        for name in transfer.parameters
    ]
    if len(names) > MAX_SHOWN_PARAMETERS:
        return f"{len(names)} parameters, {names[0]} … {names[-1]}"
    return ", ".join(names)


def drawn(number: int, transfer: TransferDocument, label: str) -> tuple[list[Interval], Window]:
    """Return the intervals of a transfer on the network, and its window."""
    spans: tuple[tuple[Kind, int, int], ...] = (
        ("startup", transfer.start_ns, transfer.startup_end_ns),
        ("transfer", transfer.startup_end_ns, transfer.end_ns),
    )
    intervals = [Interval("network", start, end, kind, number, label) for kind, start, end in spans]
    times = transfer.ready_ns, transfer.start_ns, transfer.end_ns, transfer.due_ns
    return intervals, Window(number, *times, label)
