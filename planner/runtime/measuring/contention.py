"""Measure the contention between transfers and computation (`planner.model.contention`).

Problem: what a transfer takes from the computing core depends on what it meets.
Method: Transfers run through an executor's channel; products of matrices, or passes of the model,
run in this thread. Each round times transfers of all sizes alone (all-reduces are polled for:
`Ring`), and then computes without a pause: some passes alone, and for each size some with transfers
until the last one ends. The computing thread releases these at a pace, as gradients become ready:
one that finds the network idle costs more than one that waits behind another. The computation's
delay per transfer is the transfer's processor time, hand-overs included. Copies into the messages
of all-reduces are not, because profiles made with an optimiser include them. These messages take
turns, as one that was touched just before would be found in a cache. For each size the
median over the rounds counts, of the rank that loses most; lines through the medians of all sizes
are fitted by least squares.
Guarantee: All ranks return the same result.
Complexity: (1 + rounds) · (1 + 2 · sizes) samples, each of `SAMPLE_S` or of one longer pass.
Source: own.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor, distributed, nn

from planner.model.contention import Interference
from planner.model.fitting import ELEMENT_BYTES
from planner.model.measured import Collective
from planner.profiling.timing import clock_for, copied_gradients, time_bare
from planner.runtime.collectives.ring import AllReduce, Ring
from planner.runtime.executors.channel import Channel, Ticket
from planner.runtime.executors.trace import Trace
from planner.runtime.measuring.sweep import transfer
from planner.runtime.world.world import World

SAMPLE_S = 0.3
"""Duration of the transfers in one round, alone and with computation."""

SIZES = (2**14, 2**18, 2**20, 2**23)
"""Sizes (bytes) of the transfers, as plans have them: of a bias, of layers, of a bucket. A byte of
the last one costs a sixth more than one of the others. The first size is used only if a thread
polls: otherwise idle processors sleep, and waking one takes longer than such a transfer."""

PACE = 4 / 3
"""Time between the releases of two transfers, over the time of one alone: some transfers find the
network idle, the others wait for it, as in plans."""

SIDE = 512
"""Side of the matrices: a product takes some ms on a core, as layers do, and exceeds its cache."""

COLD_BYTES = 2**24
"""Bytes of the messages that take turns, more than a core's own cache holds: the messages of a step
were last touched in the step before."""

DECIMALS = 4
"""Digits of the slowdown, and of the processor time per byte."""


Tick = Callable[[], object]
"""A function that the computation calls regularly; it may release a transfer."""

_Made = Callable[[int, bool], list[Ticket]]
"""Returns a number of transfers; the second argument says whether they are ready to leave."""


class _Sample(NamedTuple):
    """The processor time of a transfer, its time alone, and its extra time under contention."""

    processor_ns: float
    alone_ns: float
    longer_ns: float


def sizes_for(collective: Collective | AllReduce) -> tuple[int, ...]:
    """Return the sizes (bytes) at which a collective's contention is measured."""
    return SIZES if collective == "all_reduce" else SIZES[1:]


def measure_interference(
    world: World,
    collective: Collective | AllReduce,
    sizes: Sequence[int] | None = None,
    rounds: int = 5,
    *,
    compute: Callable[[Tick], object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Interference:
    """Measure contention of transfers and computation; all ranks call it with the same arguments.

    `sizes` holds at least two sizes (bytes), multiples of 4; by default `sizes_for` the collective.
    An unmeasured round comes before the `rounds`. `compute` computes for a while and calls its
    argument now and then, such as `passes_of` a model; by default it multiplies matrices.
    `progress` is called after each round with the number done and the total.
    """
    if compute is None:
        matrix, out = torch.ones(SIDE, SIDE), torch.empty(SIDE, SIDE)

        def compute(tick: Tick) -> object:
            tick()
            return torch.mm(matrix, matrix, out=out)

    sizes = sizes_for(collective) if sizes is None else sizes
    awake = during = collective
    if collective == "all_reduce":
        group = world.new_group()
        awake, during = Ring(group, polls=True), Ring(group)
    elements = [size // ELEMENT_BYTES for size in sizes]
    apart = [_transfers(world, awake, count, count) for count in elements]
    kinds = [_transfers(world, during, count, COLD_BYTES // ELEMENT_BYTES) for count in elements]
    counts, passes, rows = [1] * len(sizes), list[float](), list[list[_Round]]()
    trace = Trace()
    with closing(Channel(world, trace)) as channel, world.transferring():
        clock = _Clock(world, compute, channel, trace)
        for number in range(rounds + 1):
            alone = [clock.alone(*pair) for pair in zip(apart, counts, strict=True)]
            compute(_nothing)  # the first pass after a pause takes longer
            passes.append(clock.computing())
            row = []
            for made, count, alone_ns in zip(kinds, counts, alone, strict=True):
                row.append(_Round(alone_ns, *clock.together(made, count, alone_ns)))
            if number:
                rows.append(row)
            else:
                counts = _counts(world, alone, max(passes))
            if progress is not None:
                progress(number + 1, rounds + 1)
        pass_ns = median(passes)  # of all rounds, so a slow pass adds nothing to a transfer
        samples = [[each.sample(pass_ns) for each in column] for column in zip(*rows, strict=True)]
        worst = torch.tensor(
            [[median(values) for values in zip(*column, strict=True)] for column in samples],
            dtype=torch.float64,
        )
        distributed.all_reduce(worst, op=distributed.ReduceOp.MAX, group=world.group)
    return _fitted(sizes, [_Sample(*row) for row in worst.tolist()])


def _counts(world: World, alone_ns: Sequence[float], pass_ns: float) -> list[int]:
    """Return how many transfers of each size make a sample."""
    sample_ns = max(SAMPLE_S * 1e9, pass_ns)
    counts = torch.tensor([max(1, round(sample_ns / each)) for each in alone_ns])
    distributed.all_reduce(counts, op=distributed.ReduceOp.MIN, group=world.group)
    return [int(count) for count in counts]


def _fitted(sizes: Sequence[int], samples: Sequence[_Sample]) -> Interference:
    """Fit the contention parameters to samples of several sizes."""
    alone = np.array([sample.alone_ns for sample in samples])
    weights = 1 / np.sqrt(alone)  # between equal weights of absolute and of relative errors

    def line(places: Any, values: Sequence[float]) -> tuple[float, float]:
        """Return the offset and the slope of a line, neither below 0."""
        rows = np.column_stack((np.ones_like(alone), places)) * weights[:, None]
        offset, slope = nnls(rows, values * weights)[0]
        return float(offset), float(slope)

    startup, rate = line(np.array(sizes), [sample.processor_ns for sample in samples])
    delay, slower = line(alone, [sample.longer_ns for sample in samples])
    return Interference(
        max(round(startup), 1),
        Fraction(str(round(rate, DECIMALS))),
        Fraction(str(round(1 + slower, DECIMALS))),
        round(delay),
    )


def _transfers(
    world: World, collective: Collective | AllReduce, elements: int, at_least: int
) -> _Made:
    """Return a function that makes the given number of transfers, as executors do.

    Each has this number of elements. Messages of all-reduces take turns; together they have
    `at_least` elements.
    """
    if isinstance(collective, Ring):
        several = torch.zeros(-(-at_least // elements), elements)
        return lambda count, ready: [
            _queued(collective, several[number % len(several)], number, ready)
            for number in range(count)
        ]
    run, _, _ = transfer(world, collective, elements, torch.zeros(2, elements + world.size))
    return lambda count, ready: [Ticket(run, 0, number, ready=ready) for number in range(count)]


def _queued(ring: Ring, flat: Tensor, number: int, ready: bool) -> Ticket:
    """Return the all-reduce of a message that gloo queues."""
    waits: list[Callable[[], object]] = []

    def begin() -> None:
        waits.append(ring.begin(flat))

    def work() -> None:
        waits.pop()()

    return Ticket(work, 0, number, begin=begin, ready=ready)


class _Round(NamedTuple):
    """The measurements of a size in one round, as means per transfer."""

    alone_ns: float
    overlapped_ns: float
    lasted_ns: float  # until the overlapping passes had ended
    passes: float  # the number of these passes

    def sample(self, pass_ns: float) -> _Sample:
        """Return the times of one transfer; `pass_ns` is the time of a pass without transfers."""
        taken_ns = max(self.lasted_ns - self.passes * pass_ns, 0.0)
        return _Sample(taken_ns, self.alone_ns, self.overlapped_ns - self.alone_ns)


@dataclass(frozen=True, slots=True)
class _Clock:
    """Times transfers, computation, and both."""

    world: World
    compute: Callable[[Tick], object]
    channel: Channel
    trace: Trace

    def alone(self, made: _Made, count: int) -> float:
        """Return the time (ns) of each of `count` transfers."""
        start, tickets = self._begun(made(count, True))
        self.channel.wait(tickets[-1])
        return self._lasted(start) / count

    def computing(self) -> float:
        """Return the time (ns) of a pass."""
        lasted, passes = self._computed(lambda ns: ns < SAMPLE_S * 1e9, _nothing)
        return lasted / passes

    def together(self, made: _Made, count: int, alone_ns: float) -> tuple[float, float, float]:
        """Return the times of an overlapped transfer and until the passes end, and their number.

        All three are divided by the number of transfers.
        """
        start, tickets = self._begun(made(count, False))
        last, released = tickets[-1], 0

        def release() -> None:
            nonlocal released
            due = (time.monotonic_ns() - start) / (PACE * alone_ns)
            while released < count and released <= due:
                released += 1
                self.channel.release(tickets[released - 1])

        def going(_: int) -> bool:
            self.channel.check()
            return not last.done

        _, passes = self._computed(going, release)
        ended = time.monotonic_ns()
        return self._lasted(start) / count, (ended - start) / count, passes / count

    def _begun(self, tickets: list[Ticket]) -> tuple[int, list[Ticket]]:
        self.trace.clear()
        distributed.barrier(group=self.world.group)
        start = time.monotonic_ns()
        self.channel.submit(tickets)
        return start, tickets

    def _lasted(self, start: int) -> int:
        """Return the total time (ns) of transfers, each from when the last rank has begun it.

        `start` is this rank's time of the barrier, at which all clocks count as equal.
        """
        events = (event for event in self.trace.events if event.kind == "transfer")
        times = torch.tensor([(event.start_ns - start, event.end_ns - start) for event in events])
        distributed.all_reduce(times, op=distributed.ReduceOp.MAX, group=self.world.group)
        total, ended = 0, 0
        for begun, end in times.tolist():
            total, ended = total + end - max(begun, ended), end
        return total

    def _computed(self, go_on: Callable[[int], bool], tick: Tick) -> tuple[int, int]:
        """Compute repeatedly; return the total time (ns) and the number of repetitions."""
        count, start = 0, time.monotonic_ns()
        while count == 0 or go_on(time.monotonic_ns() - start):
            self.compute(tick)
            count += 1
        return time.monotonic_ns() - start, count


def _nothing() -> None:
    """Release no transfer."""


def passes_of(model: nn.Module, inputs: tuple[Any, ...]) -> Callable[[Tick], object]:
    """Return a function that runs a model's forward and backward pass, to measure contention.

    It copies each complete gradient, as training does before transfers, and calls its argument
    before each module and at each complete gradient.
    """
    clock, messages = clock_for(model), dict[Tensor, Tensor]()

    def passes(tick: Tick) -> object:
        with copied_gradients(model, messages), ExitStack() as hooks:
            for module in model.modules():
                hooks.callback(module.register_forward_pre_hook(lambda *_: tick()).remove)
            for parameter in model.parameters():
                if parameter.requires_grad:
                    hook = parameter.register_post_accumulate_grad_hook(lambda _: tick())
                    hooks.callback(hook.remove)
            return time_bare(model, inputs, clock)

    return passes
