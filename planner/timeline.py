"""Timelines: what occupies which serial resource when.

The one form in which schedules are drawn and traced, and the one place where overlap is measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from planner.errors import InvalidInputError, InvalidPlanError

__all__ = [
    "COMPUTES",
    "Interval",
    "Kind",
    "Mark",
    "Memory",
    "Timeline",
    "Window",
    "busy_ns",
    "overlap_ns",
]

Kind = Literal[
    "startup", "all_reduce", "collective", "push", "pull", "backward", "forward", "computation"
]
COMPUTES: tuple[Kind, ...] = ("backward", "forward", "computation")
"""Kinds of computation."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Half-open stretch of time [start, end) on one resource.

    Attributes
    ----------
    resource : str
        Name of the serial resource, such as "communication".
    start_ns, end_ns : int
        Its time.
    kind : str
        What happens in it: parts of a transfer, or computation, maybe of one pass.
    batch : int
        Number of the batch it belongs to, from 0 in transfer order; -1 if it belongs to none.
    label : str
        What a reader should see.
    """

    resource: str
    start_ns: int
    end_ns: int
    kind: Kind
    batch: int
    label: str

    def __post_init__(self) -> None:
        if not 0 <= self.start_ns <= self.end_ns:
            raise InvalidInputError("", f"not an interval: [{self.start_ns}, {self.end_ns})")


@dataclass(frozen=True, slots=True)
class Window:
    """When a transfer could happen, and when it does.

    Attributes
    ----------
    batch : int
        Number of the transfer's batch.
    ready_ns : int
        When it may start.
    start_ns, end_ns : int
        When it does, and when it has ended.
    due_ns : int
        When its end is waited for; it can end later.
    label : str
        What a reader should see.
    kind : {"all_reduce", "push", "pull"}
        What it does.
    names : tuple of str
        The parameters it carries, if they are known.
    size_bytes : int or None
        How much they are.
    """

    batch: int
    ready_ns: int
    start_ns: int
    end_ns: int
    due_ns: int
    label: str
    kind: Kind = "all_reduce"
    names: tuple[str, ...] = ()
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment a reader should see.

    Attributes
    ----------
    time_ns : int
        When it is.
    label : str
        What happens then.
    """

    time_ns: int
    label: str


@dataclass(frozen=True, slots=True)
class Memory:
    """What is in memory, from moment to moment.

    Attributes
    ----------
    levels : tuple of (int, int)
        Moments (ns), in order, and bytes from each of them on.
    limit_bytes : int or None
        How much there is.
    """

    levels: tuple[tuple[int, int], ...]
    limit_bytes: int | None = None

    @property
    def peak(self) -> tuple[int, int]:
        """The first moment with the most, and how much."""
        return max(self.levels, key=lambda level: level[1])


@dataclass(frozen=True, slots=True)
class Timeline:
    """Intervals on named serial resources.

    Attributes
    ----------
    resources : tuple of str
        In the order in which they are drawn.
    intervals : tuple of Interval
        In any order.
    windows : tuple of Window
        Of each batch, in transfer order; empty if the batches have none.
    marks : tuple of Mark
        Moments to point out.
    memory : Memory or None
        What is in memory meanwhile, if that is known.
    """

    resources: tuple[str, ...]
    intervals: tuple[Interval, ...]
    windows: tuple[Window, ...] = ()
    marks: tuple[Mark, ...] = ()
    memory: Memory | None = None

    @property
    def end_ns(self) -> int:
        """When the last interval ends."""
        return max((interval.end_ns for interval in self.intervals), default=0)

    def on(self, resource: str) -> list[Interval]:
        """Return the intervals on one resource by start time."""
        chosen = [interval for interval in self.intervals if interval.resource == resource]
        return sorted(chosen, key=lambda interval: (interval.start_ns, interval.end_ns))

    def check_serial(self) -> None:
        """Check that no two intervals on one resource overlap.

        Raises
        ------
        InvalidPlanError
            Naming the resource and the two intervals.
        """
        for resource in self.resources:
            for first, second in pairwise(self.on(resource)):
                if second.start_ns < first.end_ns:
                    raise InvalidPlanError(
                        "", f"{first.label} and {second.label} overlap on {resource}"
                    )


def busy_ns(spans: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of `spans` (pairs start, end). O(n log n)."""
    covered, until = 0, 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, until))
        until = max(until, end)
    return covered


def overlap_ns(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> int:
    """Return for how long both lanes are busy at once. O(n log n)."""
    return busy_ns(first) + busy_ns(second) - busy_ns(first + second)
