"""Measure the contention (`beside`) between transfers and computation (`planner.model.contention`).

Method: Transfers run through an executor's channel, one after the other; products of matrices, or
passes of the model, run in this thread. Each round times, for each size, computation alone,
transfers alone, and both together until the last transfer ends. The computation's delay per
transfer is the transfer's processor time, copies and hand-overs included. Medians over the rounds
count, of the rank that loses most. The largest transfer gives the slowdown; the rest of smaller
ones is the delay.
Guarantee: All ranks return the same.
Complexity: (1 + rounds) · sizes samples of `SAMPLE_S`, or of one longer pass; three of each.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from fractions import Fraction
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import distributed, nn

from planner.model.contention import Interference
from planner.model.fitting import ELEMENT_BYTES, fit_affine
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

SIDE = 512
"""Side of the matrices: a product takes some ms on a core, as layers do, and exceeds its cache."""

DECIMALS = 4
"""Digits of the slowdown, and of the processor time per byte."""


class _Sample(NamedTuple):
    """Of one transfer: its processor time, its time alone, and its extra time under contention."""

    processor_ns: float
    alone_ns: float
    longer_ns: float


def measure_interference(
    world: World,
    collective: Collective | AllReduce,
    sizes: Sequence[int],
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
    rows: list[list[_Sample]] = [[] for _ in sizes]
    trace = Trace()
    with closing(Channel(world, trace)) as channel, world.transferring():
        for number in range(rounds + 1):
            for place, tickets in enumerate(kinds):
                sample = _sample(world, tickets, compute, channel, trace)
                if number:
                    rows[place].append(sample)
            if progress is not None:
                progress(number + 1, rounds + 1)
        worst = torch.tensor(
            [[median(row) for row in zip(*samples, strict=True)] for samples in rows],
            dtype=torch.float64,
        )
        distributed.all_reduce(worst, op=distributed.ReduceOp.MAX, group=world.group)
    return _fitted(sizes, [_Sample(*row) for row in worst.tolist()])


def _fitted(sizes: Sequence[int], samples: Sequence[_Sample]) -> Interference:
    """Fit the contention parameters to samples of increasing sizes."""
    taken = [
        (size, max(round(sample.processor_ns), 1))
        for size, sample in zip(sizes, samples, strict=True)
    ]
    cost = fit_affine(taken)
    *smaller, largest = samples
    slower = max(largest.longer_ns, 0.0) / largest.alone_ns
    delays = [sample.longer_ns - slower * sample.alone_ns for sample in smaller]
    return Interference(
        cost.startup_ns,
        Fraction(str(round(float(cost.ns_per_byte), DECIMALS))),
        Fraction(str(round(1 + slower, DECIMALS))),
        max(round(median(delays)), 0),
    )


def _transfers(
    world: World, collective: Collective | AllReduce, elements: int
) -> Callable[[int], list[Ticket]]:
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


def _sample(
    world: World,
    made: Callable[[int], list[Ticket]],
    compute: Callable[[], object],
    channel: Channel,
    trace: Trace,
) -> _Sample:
    """Time a transfer alone and with computation."""

    def begun(count: int) -> tuple[int, Ticket]:
        tickets = made(count)
        trace.clear()
        distributed.barrier(group=world.group)
        start = time.monotonic_ns()
        channel.submit(tickets)
        return start, tickets[-1]

    def alone(count: int) -> float:
        start, last = begun(count)
        channel.wait(last)
        return lasted(start) / count

    def lasted(start: int) -> int:
        return max(event.end_ns for event in trace.events if event.kind == "transfer") - start

    def going(_: int) -> bool:
        channel.check()
        return not last.done

    computed_ns, computations = _computed(compute, lambda ns: ns < SAMPLE_S * 1e9)
    sample_ns = max(SAMPLE_S * 1e9, computed_ns / computations)
    count = torch.tensor([max(1, round(sample_ns / alone(1)))])
    distributed.all_reduce(count, op=distributed.ReduceOp.MIN, group=world.group)
    times = int(count)
    alone_ns = alone(times)
    start, last = begun(times)
    _, beside = _computed(compute, going)
    lost_ns = time.monotonic_ns() - start - beside * computed_ns / computations
    return _Sample(max(lost_ns / times, 0.0), alone_ns, lasted(start) / times - alone_ns)


def _computed(compute: Callable[[], object], go_on: Callable[[int], bool]) -> tuple[int, int]:
    """Compute repeatedly; return the total time (ns) and the number of repetitions."""
    count, start = 0, time.monotonic_ns()
    while count == 0 or go_on(time.monotonic_ns() - start):
        compute()
        count += 1
    return time.monotonic_ns() - start, count


def passes_of(model: nn.Module, inputs: tuple[Any, ...]) -> Callable[[], object]:
    """Return a function that runs a model's forward and backward pass, to measure contention."""
    return partial(time_bare, model, inputs, clock_for(model))
