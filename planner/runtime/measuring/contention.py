"""Measure the contention (`beside`) between transfers and computation (`planner.model.contention`).

Method: Transfers run through an executor's channel, one after the other; products of matrices, or
passes of the model, run in this thread. Each round times transfers of all sizes alone, and then
computes without a pause: for each size some passes alone, and some with transfers until the last
one ends. The computation's delay per transfer is the transfer's processor time, copies and
hand-overs included. Medians over the rounds count, of the rank that loses most; lines through those
of all sizes are fitted by least squares.
Guarantee: All ranks return the same.
Complexity: (1 + rounds) · sizes samples of `SAMPLE_S`, or of one longer pass; three of each.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls
from torch import distributed, nn

from planner.model.contention import Interference
from planner.model.fitting import ELEMENT_BYTES
from planner.model.measured import Collective
from planner.profiling.timing import clock_for, time_bare
from planner.programs import Batch, Piece
from planner.runtime.collectives.ring import AllReduce, Ring
from planner.runtime.executors.channel import Channel, Ticket
from planner.runtime.executors.messages import messages_of, sent
from planner.runtime.executors.trace import Trace
from planner.runtime.measuring.sweep import transfer
from planner.runtime.world.world import World

SAMPLE_S = 0.2
"""Duration of the transfers in one round, alone and with computation."""

SIZES = (2**17, 2**19, 2**21)
"""Sizes (bytes) of the transfers, as plans have them. Smaller ones mostly wait for each other, and
that takes longer where nothing computes: processors sleep."""

SIDE = 512
"""Side of the matrices: a product takes some ms on a core, as layers do, and exceeds its cache."""

DECIMALS = 4
"""Digits of the slowdown, and of the processor time per byte."""


_Made = Callable[[int], list[Ticket]]
"""Makes a number of transfers."""


class _Sample(NamedTuple):
    """Of one transfer: its processor time, its time alone, and its extra time under contention."""

    processor_ns: float
    alone_ns: float
    longer_ns: float


def measure_interference(
    world: World,
    collective: Collective | AllReduce,
    sizes: Sequence[int] = SIZES,
    rounds: int = 5,
    *,
    compute: Callable[[], object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Interference:
    """Measure contention of transfers and computation; all ranks call it with the same arguments.

    `sizes` are at least two, in bytes, multiples of 4; `rounds` follow an unmeasured one. `compute`
    computes for a while, such as `passes_of` a model; by default it multiplies matrices. `progress`
    is called after each round with the number done and the total.
    """
    if compute is None:
        matrix, out = torch.ones(SIDE, SIDE), torch.empty(SIDE, SIDE)
        compute = partial(torch.mm, matrix, matrix, out=out)
    ring = Ring(world.new_group()) if collective == "all_reduce" else collective
    kinds = [_transfers(world, ring, size // ELEMENT_BYTES) for size in sizes]
    counts, passes, rows = [1] * len(sizes), list[float](), list[list[_Round]]()
    trace = Trace()
    with closing(Channel(world, trace)) as channel, world.transferring():
        clock = _Clock(world, compute, channel, trace)
        for number in range(rounds + 1):
            alone = [clock.alone(*pair) for pair in zip(kinds, counts, strict=True)]
            compute()  # the first pass after a pause takes longer
            row = []
            for made, count, alone_ns in zip(kinds, counts, alone, strict=True):
                passes.append(clock.computing())
                row.append(_Round(alone_ns, *clock.together(made, count)))
            if number:
                rows.append(row)
            else:
                counts = _counts(world, alone, max(passes))
            if progress is not None:
                progress(number + 1, rounds + 1)
        pass_ns = median(passes)  # of all rounds: a slow one must not count as a transfer's
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


def _transfers(world: World, collective: Collective | AllReduce, elements: int) -> _Made:
    """Return a function that makes the given number of transfers, as executors do."""
    if isinstance(collective, Ring):
        values = {"values": nn.Parameter(torch.zeros(elements))}
        (message,) = messages_of([Batch((Piece("values"),))], values, world.size)
        gradient = torch.zeros(elements)

        return lambda count: [
            sent(message, collective, [(gradient, 0)], 0, number, ready=True)
            for number in range(count)
        ]
    run, _, _ = transfer(world, collective, elements, torch.zeros(2, elements + world.size))
    return lambda count: [Ticket(run, 0, number, ready=True) for number in range(count)]


class _Round(NamedTuple):
    """A round's measurements of a size: of one transfer, in the mean."""

    alone_ns: float
    overlapped_ns: float
    lasted_ns: float  # until the overlapping passes had ended
    passes: float  # how many these were

    def sample(self, pass_ns: float) -> _Sample:
        """Return the times of one transfer; `pass_ns` is the time of a pass without transfers."""
        taken_ns = max(self.lasted_ns - self.passes * pass_ns, 0.0)
        return _Sample(taken_ns, self.alone_ns, self.overlapped_ns - self.alone_ns)


@dataclass(frozen=True, slots=True)
class _Clock:
    """Times transfers, computation, and both."""

    world: World
    compute: Callable[[], object]
    channel: Channel
    trace: Trace

    def alone(self, made: _Made, count: int) -> float:
        """Return the time (ns) of each of `count` transfers."""
        start, last = self._begun(made, count)
        self.channel.wait(last)
        return self._lasted(start) / count

    def computing(self) -> float:
        """Return the time (ns) of a pass."""
        lasted, passes = self._computed(lambda ns: ns < SAMPLE_S * 1e9)
        return lasted / passes

    def together(self, made: _Made, count: int) -> tuple[float, float, float]:
        """Return the time of an overlapped transfer, that until the passes end, and their number.

        All three are divided by the number of transfers.
        """
        start, last = self._begun(made, count)

        def going(_: int) -> bool:
            self.channel.check()
            return not last.done

        _, passes = self._computed(going)
        ended = time.monotonic_ns()
        return self._lasted(start) / count, (ended - start) / count, passes / count

    def _begun(self, made: _Made, count: int) -> tuple[int, Ticket]:
        tickets = made(count)
        self.trace.clear()
        distributed.barrier(group=self.world.group)
        start = time.monotonic_ns()
        self.channel.submit(tickets)
        return start, tickets[-1]

    def _lasted(self, start: int) -> int:
        events = (event for event in self.trace.events if event.kind == "transfer")
        return max(event.end_ns for event in events) - start

    def _computed(self, go_on: Callable[[int], bool]) -> tuple[int, int]:
        """Compute repeatedly; return the total time (ns) and the number of repetitions."""
        count, start = 0, time.monotonic_ns()
        while count == 0 or go_on(time.monotonic_ns() - start):
            self.compute()
            count += 1
        return time.monotonic_ns() - start, count


def passes_of(model: nn.Module, inputs: tuple[Any, ...]) -> Callable[[], object]:
    """Return a function that runs a model's forward and backward pass, to measure contention."""
    return partial(time_bare, model, inputs, clock_for(model))
