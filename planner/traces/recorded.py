"""A recorded trace of one rank, whatever recorded it: computation, transfers, steps."""

from dataclasses import dataclass

Spans = tuple[tuple[int, int], ...]
"""Starts and ends (ns), sorted, without overlaps."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One collective, as one rank saw it; times (ns) are of the rank's own clock.

    Attributes
    ----------
    collective : str
        Such as ``all_reduce``.
    start_ns, end_ns : int
        When it ran here; this includes waiting for other ranks.
    step : int
        Position in `Recorded.steps` of the step that asked for it; -1: none.
    size_bytes : int or None
        Its size; None if the trace does not say it.
    first_ready_ns, ready_ns : int or None
        When the first and the last of its data was ready; None if unknown.
    group : str
        The process group, if named.
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
        """Its duration here."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its name, and start and end on the host (ns)."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Kernels:
    """All kernels of one name: their number and total time.

    `name` is the function without arguments; `library` the communication library it belongs to,
    empty if unknown.
    """

    name: str
    library: str
    times: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded trace of one rank.

    Attributes
    ----------
    rank : int
        Its number.
    ranks : int or None
        Number of ranks of the job, if known.
    device : bool
        Whether an accelerator computed.
    computation, memory : Spans
        When something was computed, and when memory was copied or set.
    transfers : tuple of Transfer
        By start.
    steps : tuple of Step
        By start.
    launched : tuple of (int, int)
        Start and launch time of each computing kernel, by start; empty without a device.
    input : Spans
        When the host waited for data.
    synchronised : Spans
        When the host waited for the device.
    periods : tuple of (int, int)
        Start and end of each step where it computes, without gaps; the first step begins after what
        was launched before it. Empty if unknown.
    counted, doubtful : tuple of Kernels
        Kernels that count as transfers, and kernels that may be transfers but count as computation;
        the longest first.
    certain : Spans
        When something was computed, without `doubtful`.
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
        """Whether transfers may be hidden in the computation, or are missing."""
        return self.several and (bool(self.doubtful) or not self.transfers)

    @property
    def one_of_several(self) -> bool:
        """Whether other ranks took part in its transfers."""
        return self.ranks != 1 and (self.several or bool(self.transfers))
