"""Sweep of the network: time executors' transfers for one size after another.

Method: Each round goes through all sizes, every other one backwards, so that a disturbance affects
more than one size. All ranks enter a sample together, after a small all-reduce. Short transfers are
repeated within a sample, in gloo's queue where executors use it, behind half as many untimed ones;
their number comes from the warm-up. The time of a sample is that of the slowest rank. All-reduces
are polled for: where processors sleep, small ones take up to three times as long.
Guarantee: Ranks with different arguments stop with an error before the first transfer. All ranks
return the same sweep.
Complexity: (warm-up + repetitions) · sizes · depths samples, each 1.5 times as long as its timing.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, distributed, nn

from planner.model.errors import InvalidInputError, MeasurementError
from planner.model.fitting import ELEMENT_BYTES, Sweep, Timing, sweep_sizes
from planner.model.measured import COLLECTIVES, Collective
from planner.model.validation import integer, integers, one_of
from planner.programs import Batch, Piece, digest
from planner.runtime.collectives.halves import Halves
from planner.runtime.collectives.ring import MOST_PIECES, AllReduce, Ring, pieces_of
from planner.runtime.executors.shards import Exchange, cells_of, messages_of, room_for
from planner.runtime.world.world import AT_ONCE, World

SAMPLE_NS = 20_000_000
"""Least duration of a sample. Before it half as many transfers are sent untimed: after a pause a
shaped link (token bucket) passes a burst at full speed, which training does not see."""

_LONG_NS = 500_000_000
"""A single transfer of this duration outlasts any relevant burst."""

_MOST_REPEATS = 1000

MAX_REPETITIONS = 10_000
_MAX_DEPTH = 64


class _Repeated(NamedTuple):
    """A transfer that a sample repeats.

    Executors queue batches in gloo while earlier ones are in flight: a transfer costs the time it
    keeps the network, not its latency.
    """

    begin: Callable[[], Callable[[], object]]  # returns the function that waits for its end
    ahead: int = 0  # earlier transfers in flight
    together: int = 1  # transfers in flight that end at about the same time, and share the cost
    least: int = 0  # untimed before a sample: gloo's queue starts slowly, with few pieces in flight

    def sample(self, sample_ns: int, once_ns: int) -> tuple[int, int]:
        """Return the numbers of untimed and timed transfers of a sample; one takes `once_ns`."""
        count = min(max(round(sample_ns / once_ns), 1), _MOST_REPEATS)
        lead = max(-(-count // 2) if once_ns < _LONG_NS else 0, self.least)
        return -(-lead // self.together) * self.together, -(-count // self.together) * self.together

    def timed(self, lead: int, count: int) -> int:
        """Run transfers, the first `lead` untimed; return the mean time of the others (ns)."""
        waits, ends = deque[Callable[[], object]](), [time.perf_counter_ns()]
        for number in range(lead + count + self.ahead):
            if number < lead + count:
                waits.append(self.begin())
            if number >= self.ahead:
                waits.popleft()()
                ends.append(time.perf_counter_ns())
        return max((ends[-1] - ends[lead]) // count, 1)


def measure_network(
    world: World,
    collective: Collective | AllReduce = "all_reduce",
    sizes: Sequence[int] | None = None,
    repetitions: int = 20,
    *,
    depths: Sequence[int] = (1,),
    warmup: int = 2,
    sample_ns: int = SAMPLE_NS,
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
        Least duration of a sample; by default 20 ms. Before it transfers are sent untimed for half
        as long, because links that pass bursts (token buckets) are faster for the first transfers
        than for the sequences that executors send. Give more for links with longer bursts.
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
    integer(sample_ns, "sample_ns", minimum=1)
    if world.size < 2:
        raise MeasurementError("one rank has nobody to communicate with: start at least 2")
    kind: Collective = collective if isinstance(collective, str) else "all_reduce"
    algorithm = Ring.name if collective == "all_reduce" else getattr(collective, "name", "gloo")
    points = [(depth, size) for depth in depths for size in chosen]
    world.agree("the sweep", digest(kind, algorithm, points, repetitions, warmup, sample_ns))
    room = torch.zeros(2, chosen[-1] // ELEMENT_BYTES + world.size)
    with world.transferring():
        line = Ring(world.new_group(), polls=True) if collective == "all_reduce" else None
        repeated = []
        for depth, size in points:
            elements = size // ELEMENT_BYTES
            if line is not None and depth == 1:
                flat = room[0, :elements]
                pieces = pieces_of(flat)
                together = 1 if pieces > 1 else AT_ONCE
                least = AT_ONCE if pieces < MOST_PIECES else 0
                repeated.append(_Repeated(partial(line.begin, flat), AT_ONCE, together, least))
            else:
                run, _, _ = transfer(world, collective, elements, room, depth)
                # These transfers begin only when the program waits for them.
                repeated.append(_Repeated(partial(lambda waiting: waiting, run)))
        rounds = _rounds(world, repeated, repetitions, warmup, sample_ns, progress)
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
    exchange = Exchange(Halves(world.group), messages, rank, room_for(messages))
    if collective == "all_gather":
        own = flat[rank * share : (rank + 1) * share]
        return partial(exchange.pull, {values: flat}), own, flat
    mean = room[1, :share]
    (cell,) = cells[values]
    return partial(exchange.push, {values: flat}, {cell: mean}), flat, mean


def _rounds(
    world: World,
    repeated: Sequence[_Repeated],
    repetitions: int,
    warmup: int,
    sample_ns: int,
    progress: Callable[[int, int], None] | None,
) -> list[list[int]]:
    """Return for each transfer its times in all rounds, of the slowest rank."""
    signal = torch.zeros(1)
    samples = [(0, each.together) for each in repeated]
    rows: list[list[int]] = []
    for number in range(warmup + repetitions):
        row = [0] * len(repeated)
        for place in range(len(row))[:: 1 if number % 2 == 0 else -1]:
            distributed.all_reduce(signal, group=world.group)
            row[place] = repeated[place].timed(*samples[place])
        if number >= warmup:
            rows.append(row)
        else:
            (row,) = _slowest(world, [row])
            samples = [
                each.sample(sample_ns, once_ns) for each, once_ns in zip(repeated, row, strict=True)
            ]
        if progress is not None:
            progress(number + 1, warmup + repetitions)
    return [list(times) for times in zip(*_slowest(world, rows), strict=True)]


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
