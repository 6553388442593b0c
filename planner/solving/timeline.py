"""Timelines: which activity occupies which serial resource at which time.

Drawings and traces of schedules are made from these; how long a resource is busy is measured here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from planner.model.errors import InvalidInputError

Transfers = Literal["all_reduce", "collective", "push", "pull", "all_gather", "reduce_scatter"]
Kind = Literal["startup", Transfers, "backward", "forward", "computation"]
COMPUTES: tuple[Kind, ...] = ("backward", "forward", "computation")
"""Kinds of computation."""

KIND_NAMES: Mapping[Kind, str] = {
    "backward": "backward ops",
    "forward": "forward ops",
    "computation": "computation",
    "all_reduce": "all-reduce",
    "collective": "collective",
    "push": "push",
    "pull": "pull",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
}
"""What readers see of each kind."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Half-open interval [start, end) on one resource."""

    resource: str  # name of the serial resource, such as "communication"
    start_ns: int
    end_ns: int
    kind: Kind  # a part of a transfer, or computation (possibly of one pass)
    batch: int  # number of its batch, from 0 in transfer order; -1 if it belongs to none
    label: str  # text for readers

    def __post_init__(self) -> None:
        if not 0 <= self.start_ns <= self.end_ns:
            raise InvalidInputError("", f"not an interval: [{self.start_ns}, {self.end_ns})")


@dataclass(frozen=True, slots=True)
class Window:
    """A transfer's window: when it may start, runs, and is waited for."""

    batch: int  # number of the transfer's batch
    ready_ns: int
    start_ns: int
    end_ns: int
    due_ns: int  # when its end is waited for; it may end later
    label: str
    kind: Kind = "all_reduce"  # its collective
    names: tuple[str, ...] = ()  # parameters it carries, if known
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A labelled moment of a timeline."""

    time_ns: int
    label: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in use over time."""

    levels: tuple[tuple[int, int], ...]  # (time in ns, bytes from then on), in order
    limit_bytes: int | None = None  # available memory, if known

    @property
    def peak(self) -> tuple[int, int]:
        """The first time (ns) of the largest use, and the bytes in use."""
        return max(self.levels, key=lambda level: level[1])


@dataclass(frozen=True, slots=True)
class Timeline:
    """Intervals on named serial resources."""

    resources: tuple[str, ...]  # in the order in which they are drawn
    intervals: tuple[Interval, ...]  # in any order
    windows: tuple[Window, ...] = ()  # one per batch, in transfer order, if the batches have any
    marks: tuple[Mark, ...] = ()
    memory: Memory | None = None  # if known

    @property
    def end_ns(self) -> int:
        """End of the last interval."""
        return max((interval.end_ns for interval in self.intervals), default=0)

    def on(self, resource: str) -> list[Interval]:
        """Return the intervals on one resource by start time."""
        chosen = [interval for interval in self.intervals if interval.resource == resource]
        return sorted(chosen, key=lambda interval: (interval.start_ns, interval.end_ns))


def busy_ns(spans: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of `spans` (pairs start, end). O(n log n)."""
    covered, until = 0, 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, until))
        until = max(until, end)
    return covered
