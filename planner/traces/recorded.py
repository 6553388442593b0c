"""What was recorded on one rank, whatever recorded it: computation, transfers, steps."""

from dataclasses import dataclass

__all__ = ["Kernels", "Recorded", "Spans", "Step", "Transfer"]

Spans = tuple[tuple[int, int], ...]
"""Starts and ends in ns, sorted, without overlaps."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One collective, as one rank saw it; times in ns of the rank's own clock.

    Attributes
    ----------
    collective : str
        Such as ``all_reduce``.
    start_ns, end_ns : int
        From when to when it ran here; it may have waited for other ranks.
    step : int
        Position of the step that asked for it in `Recorded.steps`; -1: none.
    size_bytes : int or None
        What it carries; None if the trace does not say.
    first_ready_ns, ready_ns : int or None
        When the first and the last of what it carries was there; None if unknown.
    group : str
        The process group, if it is named.
    """

    collective: str
    start_ns: int
    end_ns: int
    step: int = -1
    size_bytes: int | None = None
    first_ready_ns: int | None = None
    ready_ns: int | None = None
    group: str = ""

    @property
    def lasts_ns(self) -> int:
        """How long it ran here."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its name, and from when to when the host was in it."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels of one name: how often and how long they ran, and whose they are.

    Attributes
    ----------
    name : str
        Their function, without arguments.
    library : str
        What moves data with kernels of this name; empty if none is known.
    times, total_ns : int
        How many ran, and the sum of their times.
    """

    name: str
    library: str
    times: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """One rank.

    Attributes
    ----------
    rank : int
        Its number.
    ranks : int or None
        How many the job has, if known.
    device : bool
        Whether an accelerator computed.
    computation, memory : Spans
        When something was computed, and when memory was copied or set.
    transfers : tuple of Transfer
        By start.
    steps : tuple of Step
        By start.
    launched : tuple of (int, int)
        Start and time of launch of each kernel that computes, by start; empty without a device.
    input : Spans
        When the host waited for data.
    synchronised : Spans
        When the host waited for the device.
    periods : tuple of (int, int)
        From when to when each step ran where it computes: side by side, the first one after what
        was launched before. Empty: unknown, or no steps.
    counted, doubtful : tuple of Kernels
        Kernels that count as transfers; those that may be transfers and count as computation.
        The longest first.
    certain : Spans
        When something was computed, `doubtful` aside.
    several : bool
        Whether the trace says that the job has more than one rank.
    """

    rank: int
    ranks: int | None
    device: bool
    computation: Spans
    memory: Spans
    transfers: tuple[Transfer, ...]
    steps: tuple[Step, ...]
    launched: tuple[tuple[int, int], ...] = ()
    input: Spans = ()
    synchronised: Spans = ()
    periods: tuple[tuple[int, int], ...] = ()
    counted: tuple[Kernels, ...] = ()
    doubtful: tuple[Kernels, ...] = ()
    certain: Spans | None = None
    several: bool = False

    @property
    def unexplained(self) -> bool:
        """Whether transfers may be among the computation, or are missing."""
        return self.several and (bool(self.doubtful) or not self.transfers)

    @property
    def one_of_several(self) -> bool:
        """Whether others had to take part in its transfers."""
        return self.ranks != 1 and (self.several or bool(self.transfers))
