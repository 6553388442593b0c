"""Sweep of the network: time executors' transfers for one size after another.

Method: Each round goes through all sizes, every other one backwards, so that a disturbance affects
more than one size. All ranks enter a sample together, after a small all-reduce. Short transfers are
repeated within a sample, in gloo's queue where executors use it; their number comes from
`settle`, or from a given time. The time of a sample is that of the slowest rank.
Guarantee: Ranks with different arguments stop with an error before the first transfer. All ranks
return the same sweep.
Complexity: (warm-up + repetitions) · sizes · depths samples; 0.1 s per size and depth to choose the
number of transfers, up to 1 s on links that are slow to settle.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

import torch
from torch import Tensor, distributed, nn

from planner.model.errors import InvalidInputError, MeasurementError
from planner.model.fitting import ELEMENT_BYTES, Sweep, Timing, sweep_sizes
from planner.model.measured import COLLECTIVES, Collective
from planner.model.validation import integer, integers, one_of
from planner.programs import Batch, Piece, digest
from planner.runtime.collectives.halves import Halves
from planner.runtime.collectives.ring import MOST_PIECES, AllReduce, QueuedRing, Ring, pieces_of
from planner.runtime.executors.shards import cells_of, messages_of, pull, push, room_for
from planner.runtime.world.world import AT_ONCE, World

# ---
# How many transfers to time on a link that passes bursts (token bucket).
#
# Problem: After a pause a shaped link passes a burst at full speed, so the first transfers look
# faster than the sequence of transfers in training.
# Method: Time a series after a pause. Its steady time is the median of the quarter means of its
# second half. A sample starts after 0, n, 2n, 4n … transfers, as soon as the next ones are steady.
# A series that never becomes steady is followed by a longer one.
# Guarantee: If the burst ends in the first half of the last series, a sample is at most 2 % faster
# than the steady time. See docs/runtime.md.
# Source: own; the token bucket is that of ``tc tbf``.


SAMPLE_NS = 20_000_000
"""Least duration of a sample."""

SERIES_NS = (50_000_000, 100_000_000, 200_000_000, 400_000_000)
"""Durations of the series, tried in order until one is steady."""

_LONG_NS = 500_000_000
"""A single transfer of this duration outlasts any relevant burst."""

_MOST_REPEATS = 1000
_TRIES = 4

_FAST = 0.98
"""Transfers below this share of the steady time are too fast."""


class Sample(NamedTuple):
    """One measurement: `lead` untimed transfers, then `timed` ones, whose mean counts."""

    lead: int
    timed: int


def settle(series: Callable[[int], Sequence[int]], once_ns: int) -> Sample:
    """Return how to time a transfer that takes about `once_ns`.

    `series` runs the given number of transfers without pauses after a pause, and returns their
    times (ns).
    """
    if once_ns >= _LONG_NS:
        return Sample(0, 1)
    times: Sequence[int] = ()
    for series_ns in SERIES_NS:
        for _ in range(_TRIES):
            times = series(max(repeats(series_ns, once_ns), 4))
            if 2 * sum(times) >= series_ns or len(times) == _MOST_REPEATS:
                break
            once_ns = max(sum(times) // len(times), 1)  # the estimate was too long
        if (sample := _sample_of(times)) is not None:
            return sample
    return Sample(len(times) // 2, len(times) // 2)


def repeats(length_ns: int, once_ns: int) -> int:
    """Return how many transfers take `length_ns` together, from 1 to 1,000."""
    return min(max(round(length_ns / once_ns), 1), _MOST_REPEATS)


def _sample_of(times_ns: Sequence[int]) -> Sample | None:
    """Return the shortest steady sample; None if the series is not steady."""
    half = len(times_ns) // 2
    width = -(-half // 4)
    steady = median(
        fmean(times_ns[start : start + width]) for start in range(half, len(times_ns), width)
    )
    count = min(repeats(SAMPLE_NS, max(round(steady), 1)), half)
    if fmean(times_ns[:count]) >= _FAST * steady:
        return Sample(0, count)
    lead = count
    while 2 * lead <= half:
        if fmean(times_ns[lead : 2 * lead]) >= _FAST * steady:
            return Sample(lead, lead)
        lead *= 2
    return None


MAX_REPETITIONS = 10_000
_MAX_DEPTH = 64
_PAUSE_S = 0.05
"""Pause after which a shaped link passes a burst again."""

_Series = Callable[[int], list[int]]
"""Runs the given number of transfers; returns when each ended (ns)."""


def measure_network(
    world: World,
    collective: Collective | AllReduce = "all_reduce",
    sizes: Sequence[int] | None = None,
    repetitions: int = 20,
    *,
    depths: Sequence[int] = (1,),
    warmup: int = 2,
    sample_ns: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Time a collective among all ranks. Every rank has to call it.

    Parameters
    ----------
    world : World
        The job.
    collective : {"all_reduce", "all_gather", "reduce_scatter"} or AllReduce
        Gloo's ring; the pull of a batch, of which each rank sends its share; the push of a batch,
        of which each rank receives and sums its share; or any all-reduce.
    sizes : sequence of int, optional
        At least two sizes (bytes), increasing multiples of 4; by default those of `sweep_sizes` up
        to 4 MB.
    repetitions, warmup : int
        Measured rounds, and at least one round before them.
    depths : sequence of int
        Chunks in flight, increasing from 1; above 1 only for all-reduces.
    sample_ns : int, optional
        Least duration of a sample. Links that pass bursts (token buckets) are faster for single
        transfers than for the sequences that executors send. By default a sample starts after the
        burst, which is found by series of up to 0.4 s. Give a time that is many times the burst for
        links with longer bursts.
    progress : callable, optional
        Called after each round with the number done and the total.

    Raises
    ------
    InvalidInputError
        If an argument is not valid.
    MeasurementError
        If there is only one rank.
    DisagreementError
        If the ranks' arguments differ.
    CommunicationError
        If a transfer fails.
    """
    chosen = sweep_sizes(4 * 10**6) if sizes is None else _checked_sizes(sizes)
    check_depths(collective, depths)
    integer(repetitions, "repetitions", minimum=1, maximum=MAX_REPETITIONS)
    integer(warmup, "warmup", minimum=1, maximum=MAX_REPETITIONS)
    if sample_ns is not None:
        integer(sample_ns, "sample_ns", minimum=1)
    if world.size < 2:
        raise MeasurementError("one rank has nobody to communicate with: start at least 2")
    kind: Collective = collective if isinstance(collective, str) else "all_reduce"
    algorithm = Ring.name if collective == "all_reduce" else getattr(collective, "name", "gloo")
    points = [(depth, size) for depth in depths for size in chosen]
    world.agree("the sweep", digest(kind, algorithm, points, repetitions, warmup, sample_ns))
    room = torch.zeros(2, chosen[-1] // ELEMENT_BYTES + world.size)
    with world.transferring():
        line = QueuedRing(world.new_line()) if collective == "all_reduce" else None
        runs, behind = [], []
        for depth, size in points:
            elements = size // ELEMENT_BYTES
            if line is not None and depth == 1:
                flat = room[0, :elements]
                pieces = pieces_of(flat)
                runs.append(
                    _queued(partial(line.begin, flat), together=1 if pieces > 1 else AT_ONCE)
                )
                behind.append(AT_ONCE if pieces < MOST_PIECES else 0)
            else:
                run, _, _ = transfer(world, collective, elements, room, depth)
                runs.append(_queued(partial(_done, run), 0))
                behind.append(0)
        rounds = _rounds(world, runs, behind, repetitions, warmup, sample_ns, progress)
    timings = [
        Timing(size, depth, tuple(times))
        for (depth, size), times in zip(points, rounds, strict=True)
    ]
    return Sweep(kind, algorithm, world.size, warmup, repetitions, tuple(timings))


def transfer(
    world: World,
    collective: Collective | AllReduce,
    elements: int,
    room: Tensor,
    depth: int = 1,
) -> tuple[Callable[[], object], Tensor, Tensor]:
    """Prepare a transfer; return the function that runs it, its input, and its output.

    Pulls and pushes are those of executors, with the same messages and copies. An all-reduce has
    one tensor for input and output. A pull sends this rank's share and fills the whole batch; a
    push sends the whole batch and fills the mean of this rank's share. `elements` is rounded up to
    equal shares; `room` holds two rows of zeros, each for the message and one number per rank.
    """
    if not isinstance(collective, str) or collective == "all_reduce":
        total = Ring(world.group) if isinstance(collective, str) else collective
        flat = room[0, :elements]
        return lambda: total(flat, depth), flat, flat
    rank, ranks = world.rank, world.size
    share = -(-elements // ranks)
    values = nn.Parameter(room[0, : share * ranks])
    flat, batch, parameters = values.detach(), Batch((Piece("values"),)), {"values": values}
    cells = cells_of([batch], parameters)
    messages = messages_of(batch, parameters, cells, ranks)
    prepared = Halves(world.group), messages, rank, room_for(messages)
    if collective == "all_gather":
        own = flat[rank * share : (rank + 1) * share]
        return partial(pull, *prepared, {values: flat}), own, flat
    mean = room[1, :share]
    (cell,) = cells[values]
    return partial(push, *prepared, {values: flat}, {cell: mean}), flat, mean


def _done(run: Callable[[], object]) -> Callable[[], object]:
    run()
    return lambda: None


def _queued(
    begin: Callable[[], Callable[[], object]], ahead: int = 2, together: int = 1
) -> _Series:
    """Return a function that runs transfers and returns the end of each.

    Executors queue batches in gloo while `ahead` earlier ones are in flight: a transfer costs the
    time it keeps the network, not its latency. Transfers `together` in flight end at about the same
    time and share the cost.
    """

    def series(count: int) -> list[int]:
        waits, ends = deque[Callable[[], object]](), [time.perf_counter_ns()]
        whole = -(-count // together) * together
        for number in range(whole + ahead):
            if number < whole:
                waits.append(begin())
            if number >= ahead:
                waits.popleft()()
                ends.append(time.perf_counter_ns())
        for last in range(together, whole + 1, together):
            step = (ends[last] - ends[last - together]) // together
            ends[last - together + 1 : last] = [
                ends[last - together] + step * place for place in range(1, together)
            ]
        return ends[1 : count + 1]

    return series


def _rounds(
    world: World,
    runs: Sequence[_Series],
    behind: Sequence[int],
    repetitions: int,
    warmup: int,
    sample_ns: int | None,
    progress: Callable[[int, int], None] | None,
) -> list[list[int]]:
    """Return for each run its times in all rounds, of the slowest rank.

    Each sample follows `behind` uncounted transfers: gloo's queue starts with few pieces in flight,
    which leaves the network idle.
    """
    signal = torch.zeros(1)

    def timed(run: _Series, sample: Sample) -> int:
        distributed.all_reduce(signal, group=world.group)
        ends = [time.perf_counter_ns(), *run(sample.lead + sample.timed)]
        return max((ends[-1] - ends[sample.lead]) // sample.timed, 1)

    samples = [Sample(0, 1)] * len(runs)
    rows: list[list[int]] = []
    for number in range(warmup + repetitions):
        order = range(len(runs)) if number % 2 == 0 else reversed(range(len(runs)))
        row = [0] * len(runs)
        for place in order:
            row[place] = timed(runs[place], samples[place])
        if number >= warmup:
            rows.append(row)
        elif number == warmup - 1:
            (row,) = _slowest(world, [row])
            chosen = [
                _sample(world, run, once_ns, sample_ns)
                for run, once_ns in zip(runs, row, strict=True)
            ]
            samples = [
                sample._replace(lead=max(sample.lead, least))
                for sample, least in zip(chosen, behind, strict=True)
            ]
        if progress is not None:
            progress(number + 1, warmup + repetitions)
    return [list(times) for times in zip(*_slowest(world, rows), strict=True)]


def _sample(world: World, run: _Series, once_ns: int, sample_ns: int | None) -> Sample:
    """Return how to time a transfer that took `once_ns`, the same on all ranks."""
    if sample_ns is not None:
        return Sample(0, repeats(sample_ns, once_ns))

    def series(count: int) -> list[int]:
        time.sleep(_PAUSE_S)
        ends = [time.perf_counter_ns(), *run(count)]
        (times,) = _slowest(world, [[end - start for start, end in pairwise(ends)]])
        return times

    return settle(series, once_ns)


def _slowest(world: World, rows: list[list[int]]) -> list[list[int]]:
    """Return the maximum of each time over all ranks."""
    times = torch.tensor(rows, dtype=torch.int64)
    distributed.all_reduce(times, op=distributed.ReduceOp.MAX, group=world.group)
    slowest: list[list[int]] = times.tolist()
    return slowest


def _checked_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    checked = integers(sizes, "sizes", minimum=1)
    for place, size in enumerate(checked):
        if size % ELEMENT_BYTES or (place and size <= checked[place - 1]):
            raise InvalidInputError(
                f"sizes[{place}]", f"expected increasing multiples of {ELEMENT_BYTES}, got {size}"
            )
    if len(checked) < 2:
        raise InvalidInputError("sizes", "expected at least two")
    return checked


def check_depths(collective: Collective | AllReduce, depths: Sequence[int]) -> None:
    """Raise an `InvalidInputError` for depths at which a collective cannot be measured."""
    if isinstance(collective, str):
        one_of(collective, COLLECTIVES, "collective")
    listed = list(integers(depths, "depths", minimum=1))
    if listed[0] != 1 or listed != sorted(set(listed)) or listed[-1] > _MAX_DEPTH:
        raise InvalidInputError(
            "depths", f"expected increasing depths from 1, at most {_MAX_DEPTH}, got {listed}"
        )
    if listed != [1] and collective in ("all_gather", "reduce_scatter"):
        raise InvalidInputError("depths", f"only an all-reduce is cut, and this is {collective}")
