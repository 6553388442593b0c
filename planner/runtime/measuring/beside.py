"""Times transfers and computation alone and beside each other (`planner.interference`).

Problem. Somebody's processor sends. How much of it does a transfer take from computation, and how
much longer does it last there?

Method. As executors do it: transfers one after the other in a thread of their own, products of
matrices in this one, with torch's threads as they are set. Each round times, for each size, the
products alone, the transfers alone, and transfers beside products until the last one has ended.
What the products are behind by, for each transfer, is its processor time. Medians over the rounds,
those of the rank that loses most: it is the one that all wait for. The largest transfer tells by
which factor transfers last longer; what smaller ones last longer than that is the delay.

Guarantee. All ranks return the same. Complexity. (1 + rounds) · sizes samples of `SAMPLE_S`, three
of each. Source. Own.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from statistics import median
from typing import NamedTuple

import torch
from torch import distributed

from planner.costs import fit_affine
from planner.interference import Interference
from planner.runtime.collectives.ring import AllReduce, Ring
from planner.runtime.measuring.sweep import transfer
from planner.runtime.world.world import World
from planner.sweeps import ELEMENT_BYTES, Collective

__all__ = ["measure_interference"]

SAMPLE_S = 0.2
"""How long transfers are timed in one round, and computation beside them."""

SIDE = 512
"""Rows and columns of the matrices: some milliseconds a product on one core, as layers take, and
too large for its cache."""

DECIMALS = 4
"""Digits that are kept of the slowdown, and of the processor time of a byte."""


class _Sample(NamedTuple):
    """Of one transfer: what it takes from computation, lasts alone, and lasts longer beside it."""

    processor_ns: float
    alone_ns: float
    longer_ns: float


def measure_interference(
    world: World,
    collective: Collective | AllReduce,
    sizes: Sequence[int],
    rounds: int = 5,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Interference:
    """Time transfers beside computation. Every rank has to call it, with the same arguments.

    Parameters
    ----------
    world : World
        The job.
    collective : str or AllReduce
        As in `planner.runtime.measuring.sweep.measure_network`.
    sizes : sequence of int
        At least two sizes in bytes, multiples of 4.
    rounds : int
        Measured rounds, after one that is not.
    progress : callable, optional
        Called after each round with how many are done, of how many.

    Raises
    ------
    CommunicationError
        If a transfer fails.
    """
    kind: Collective = collective if isinstance(collective, str) else "all_reduce"
    all_reduce = Ring(world.group) if isinstance(collective, str) else collective
    room = torch.zeros(2, max(sizes) // ELEMENT_BYTES + world.size)
    runs = [
        transfer(world, kind, size // ELEMENT_BYTES, room, all_reduce=all_reduce)[0]
        for size in sizes
    ]
    rows: list[list[_Sample]] = [[] for _ in sizes]
    with ThreadPoolExecutor(1) as channel, world.transferring():
        for number in range(rounds + 1):
            for place, run in enumerate(runs):
                sample = _sample(world, run, channel)
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
    """Return the interference that samples of increasing sizes show."""
    taken = [
        (size, max(round(sample.processor_ns), 1))
        for size, sample in zip(sizes, samples, strict=True)
    ]
    cost = fit_affine(taken).cost
    *smaller, largest = samples
    slower = max(largest.longer_ns, 0.0) / largest.alone_ns
    delays = [sample.longer_ns - slower * sample.alone_ns for sample in smaller]
    return Interference(
        cost.startup_ns,
        Fraction(str(round(float(cost.ns_per_byte), DECIMALS))),
        Fraction(str(round(1 + slower, DECIMALS))),
        max(round(median(delays)), 0),
    )


def _sample(world: World, run: Callable[[], object], channel: ThreadPoolExecutor) -> _Sample:
    """Time a transfer alone and beside computation."""
    product_ns, _ = _products(lambda ns: ns < SAMPLE_S * 1e9)
    alone_ns = channel.submit(_transfers, world, run, 1).result()
    count = torch.tensor([max(1, round(SAMPLE_S * 1e9 / alone_ns))])
    distributed.all_reduce(count, op=distributed.ReduceOp.MIN, group=world.group)
    times = int(count)
    alone_ns = channel.submit(_transfers, world, run, times).result() / times
    beside = channel.submit(_transfers, world, run, times)
    each_ns, products = _products(lambda _: not beside.done())
    lost_ns = products * (each_ns - product_ns)
    return _Sample(max(lost_ns / times, 0.0), alone_ns, beside.result() / times - alone_ns)


def _transfers(world: World, run: Callable[[], object], times: int) -> float:
    """Carry a transfer out so often; return how long it took, in ns."""
    distributed.barrier(group=world.group)
    start = time.perf_counter_ns()
    for _ in range(times):
        run()
    return float(time.perf_counter_ns() - start)


def _products(go_on: Callable[[float], bool]) -> tuple[float, int]:
    """Multiply matrices; return how long each product took in the mean, in ns, and how many."""
    matrix, out = torch.ones(SIDE, SIDE), torch.empty(SIDE, SIDE)
    count, start = 0, time.perf_counter_ns()
    while count == 0 or go_on(float(time.perf_counter_ns() - start)):
        torch.mm(matrix, matrix, out=out)
        count += 1
    return (time.perf_counter_ns() - start) / count, count
