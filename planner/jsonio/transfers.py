"""Transfers in answers, of gradients or of whole iterations, as they are drawn and checked."""

from collections.abc import Sequence

from msgspec import UNSET

from planner.errors import InvalidInputError
from planner.jsonio.caramel import GroupAnswer
from planner.jsonio.iteration_answer import TransferAnswer
from planner.timeline import Interval, Kind, Window

__all__ = ["check_spans", "content", "drawn"]

MAX_SHOWN_PARAMETERS = 3
"""More parameters of a transfer are left out of its label."""

Transfer = GroupAnswer | TransferAnswer


def content(transfer: Transfer) -> str:
    """Return what a transfer carries, in a few words."""
    part = {} if transfer.part is UNSET else transfer.part
    names = [
        f"{name} [{part[name][0]}, {part[name][1]})" if name in part else name
        for name in transfer.parameters
    ]
    if len(names) > MAX_SHOWN_PARAMETERS:
        return f"{len(names)} parameters, {names[0]} … {names[-1]}"
    return ", ".join(names)


def drawn(number: int, transfer: Transfer, label: str) -> tuple[list[Interval], Window]:
    """Return the intervals of a transfer on the network, and its window."""
    spans: tuple[tuple[Kind, int, int], ...] = (
        ("startup", transfer.start_ns, transfer.startup_end_ns),
        ("transfer", transfer.startup_end_ns, transfer.end_ns),
    )
    intervals = [Interval("network", start, end, kind, number, label) for kind, start, end in spans]
    times = transfer.ready_ns, transfer.start_ns, transfer.end_ns, transfer.due_ns
    return intervals, Window(number, *times, label)


def check_spans(name: str, transfers: Sequence[Transfer], end_ns: int) -> None:
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
