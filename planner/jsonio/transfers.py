"""Transfers in answers, of gradients or of whole iterations: what is said, drawn and checked."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.errors import InvalidInputError
from planner.jsonio.types import Moment, PositiveSize, Size
from planner.timeline import Interval, Kind, Window

__all__ = ["Names", "TransferDocument", "check_spans", "content", "drawn"]

MAX_SHOWN_PARAMETERS = 3
"""More parameters of a transfer are left out of its label."""

Names = Annotated[tuple[str, ...], Meta(min_length=1)]


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


def content(transfer: TransferDocument) -> str:
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


def check_spans(name: str, transfers: Sequence[TransferDocument], end_ns: int) -> None:
    """Refuse transfers that overlap, leave before they are ready, or end after `end_ns`.

    Raises
    ------
    InvalidInputError
        With the first one's path, such as ``groups[0].start_ns`` for the name ``groups``.
    """
    free = 0
    for number, one in enumerate(transfers):
        path = f"{name}[{number}]"
        for field, value, least in (
            ("start_ns", one.start_ns, max(one.ready_ns, free)),
            ("startup_end_ns", one.startup_end_ns, one.start_ns),
            ("end_ns", one.end_ns, one.startup_end_ns),
        ):
            if value < least:
                raise InvalidInputError(
                    f"{path}.{field}", f"expected an integer >= {least}, got {value}"
                )
        if one.end_ns > end_ns:
            raise InvalidInputError(f"{path}.end_ns", "after the end of the iteration")
        free = one.end_ns
