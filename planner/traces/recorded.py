"""The recorded trace of one rank, whatever recorded it, and where its time went.

A rank's time is computing, communicating, both, or idle. The definitions are those of
HolisticTraceAnalysis, so numbers can be compared. The whole time runs from the first to the last
event on the device; `compute` is when any kernel computed, `idle` when nothing ran, `non_compute`
the rest; `overlap` is the share of communication during which something was computed.

Complexity: O(events · log events).
Source: HolisticTraceAnalysis, "Temporal breakdown" and "Communication computation overlap".
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.model.errors import InvalidInputError

Spans = tuple[tuple[int, int], ...]  # starts and ends (ns), sorted, without overlaps


@dataclass(frozen=True, slots=True)
class Transfer:
    """One collective, as one rank saw it; times (ns) are of the rank's own clock."""

    collective: str  # such as ``all_reduce``
    start_ns: int  # when it ran here, waiting for other ranks included
    end_ns: int
    step: int = -1  # position in `Recorded.steps` of the step that asked for it; -1: none
    size_bytes: int | None = None  # None if the trace does not say it
    first_ready_ns: int | None = None  # when the first of its data was ready; None if unknown
    ready_ns: int | None = None  # when the last of its data was ready
    group: str = ""  # the process group, if named
    asked_ns: int | None = None  # when the host called for it; None if unknown
    behind: int | None = None  # gradients of its step that were complete then; None if unknown

    @property
    def lasts_ns(self) -> int:
        """Its duration here."""
        return self.end_ns - self.start_ns

    @property
    def called_ns(self) -> int:
        """When the host called for it; its start if that is unknown."""
        return self.start_ns if self.asked_ns is None else self.asked_ns


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
    """The recorded trace of one rank."""

    rank: int  # its number
    ranks: int | None  # of the job, if known
    device: bool  # whether an accelerator computed
    computation: Spans  # when something was computed
    memory: Spans  # when memory was copied or set
    transfers: tuple[Transfer, ...]  # by start
    steps: tuple[Step, ...]  # by start
    # Start and launch of each computing kernel, by start; empty without a device.
    launched: tuple[tuple[int, int], ...] = ()
    input: Spans = ()  # when the host waited for data
    synchronised: Spans = ()  # when the host waited for the device
    # Start and end of each step where it computes, without gaps; the first step begins after what
    # was launched before it. Empty if unknown.
    periods: tuple[tuple[int, int], ...] = ()
    counted: tuple[Kernels, ...] = ()  # kernels that count as transfers, the longest first
    doubtful: tuple[Kernels, ...] = ()  # those that may be transfers and count as computation
    certain: Spans | None = None  # when something was computed, without `doubtful`
    several: bool = False  # whether the trace says that the job has more than one rank

    @property
    def unexplained(self) -> bool:
        """Whether transfers may be hidden in the computation, or are missing."""
        return self.several and (bool(self.doubtful) or not self.transfers)

    @property
    def one_of_several(self) -> bool:
        """Whether other ranks took part in its transfers."""
        return self.ranks != 1 and (self.several or bool(self.transfers))


def check_one_each(ranks: Sequence[Recorded]) -> None:
    """Raise `InvalidInputError` if two recordings are of the same rank."""
    numbers = Counter(rank.rank for rank in ranks)
    if twice := [rank for rank, count in numbers.items() if count > 1]:
        raise InvalidInputError(
            "traces", f"{numbers[twice[0]]} are of rank {twice[0]}: expected one trace a rank"
        )


def gradient_sends(rank: Recorded) -> tuple[Transfer, ...]:
    """Return the all-reduces of a rank's steps, or the reduce-scatters if those send more.

    They are in the order in which they were called for.
    """
    kinds: dict[str, list[Transfer]] = {"all_reduce": [], "reduce_scatter": []}
    for each in rank.transfers:
        if each.step >= 0 and each.collective in kinds:
            kinds[each.collective].append(each)
    own = max(kinds.values(), key=lambda sends: sum(each.size_bytes or 0 for each in sends))
    return tuple(sorted(own or kinds["reduce_scatter"], key=lambda each: each.called_ns))


# ---
# Set operations on times: sorted spans without overlaps.
#
# Complexity: O(n log n) for `merged`, O(log n + result) for `clipped`, linear for the others.


def merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return the union of spans that may overlap."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif start < end:
            joined.append((start, end))
    return tuple(joined)


def both(first: Spans, second: Spans) -> Spans:
    """Return the intersection."""
    common, place = [], 0
    for start, end in first:
        while place < len(second) and second[place][1] <= start:
            place += 1
        at = place
        while at < len(second) and second[at][0] < end:
            common.append((max(start, second[at][0]), min(end, second[at][1])))
            at += 1
    return tuple(common)


def clipped(spans: Spans, period: tuple[int, int]) -> Spans:
    """Return the part of the spans within a period."""
    start, end = period
    if start >= end:
        return ()
    first = bisect_right(spans, start, key=lambda span: span[1])
    last = bisect_left(spans, end, key=lambda span: span[0])
    return tuple((max(start, at), min(end, until)) for at, until in spans[first:last])


def without(whole: Spans, taken: Spans) -> Spans:
    """Return the difference: `whole` without `taken`."""
    left, place = [], 0
    for start, end in whole:
        at = start
        while place < len(taken) and taken[place][1] <= start:
            place += 1
        beside = place
        while beside < len(taken) and taken[beside][0] < end:
            if at < taken[beside][0]:
                left.append((at, taken[beside][0]))
            at = max(at, taken[beside][1])
            beside += 1
        if at < end:
            left.append((at, end))
    return tuple(left)


def length(spans: Spans) -> int:
    """Return the total duration."""
    return sum(end - start for start, end in spans)


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Times of one rank over the whole trace (ns).

    Idle, compute and non-compute time sum to the whole. Communication is overlapped by computation
    or exposed.
    """

    whole_ns: int
    idle_ns: int
    compute_ns: int
    non_compute_ns: int
    communication_ns: int
    overlapped_ns: int
    exposed_ns: int
    input_ns: int  # part of the idle time in which the host waited for data

    @property
    def overlap(self) -> float | None:
        """Share of communication that computation hides; None without communication."""
        return self.overlapped_ns / self.communication_ns if self.communication_ns else None


@dataclass(frozen=True, slots=True)
class StepParts:
    """Parts of a step (ns); they sum to its duration `lasts_ns`.

    `waited_ns` is exposed communication; `copied_ns` the time of memory copies without computation
    or communication. `step` is empty if no step is marked, or several cannot be told apart.
    """

    rank: int
    step: str
    lasts_ns: int
    compute_ns: int
    waited_ns: int
    copied_ns: int
    idle_ns: int


def breakdown_of(recorded: Recorded) -> Breakdown:
    """Return the time breakdown of a rank over the whole trace."""
    sent, busy = _activity(recorded)
    whole = (busy[0][0], busy[-1][1]) if busy else (0, 0)
    return _within(whole, recorded, sent, busy)


def _activity(recorded: Recorded) -> tuple[Spans, Spans]:
    """Return when something was sent, and when anything ran."""
    sent = merged((transfer.start_ns, transfer.end_ns) for transfer in recorded.transfers)
    return sent, merged([*recorded.computation, *recorded.memory, *sent])


def _within(period: tuple[int, int], recorded: Recorded, sent: Spans, busy: Spans) -> Breakdown:
    """Return the time breakdown of one period."""
    sent, busy = clipped(sent, period), clipped(busy, period)
    computed = clipped(recorded.computation, period)
    idle = without(merged([period]), busy)
    compute, overlapped = length(computed), length(both(sent, computed))
    return Breakdown(
        whole_ns=period[1] - period[0],
        idle_ns=length(idle),
        compute_ns=compute,
        non_compute_ns=length(busy) - compute,
        communication_ns=length(sent),
        overlapped_ns=overlapped,
        exposed_ns=length(sent) - overlapped,
        input_ns=length(both(idle, clipped(recorded.input, period))),
    )


def periods_of(recorded: Recorded) -> tuple[tuple[int, int], ...]:
    """Return start and end of each step; one period for everything if steps are unknown."""
    if recorded.periods:
        return recorded.periods
    _, busy = _activity(recorded)
    return ((busy[0][0], busy[-1][1]),) if busy else ()


def parts_of(recorded: Recorded) -> tuple[StepParts, ...]:
    """Return the parts of each step."""
    periods, (sent, busy) = periods_of(recorded), _activity(recorded)
    named = len(periods) == len(recorded.steps)
    parts = []
    for place, period in enumerate(periods):
        found = _within(period, recorded, sent, busy)
        parts.append(
            StepParts(
                rank=recorded.rank,
                step=recorded.steps[place].name if named else "",
                lasts_ns=found.whole_ns,
                compute_ns=found.compute_ns,
                waited_ns=found.exposed_ns,
                copied_ns=found.non_compute_ns - found.exposed_ns,
                idle_ns=found.idle_ns,
            )
        )
    return tuple(parts)
