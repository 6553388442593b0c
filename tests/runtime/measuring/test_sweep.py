"""Timing collectives among the ranks of a job: what is sent, who agrees, what is refused."""

import time
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from planner.model.errors import (
    CommunicationError,
    DisagreementError,
    InvalidInputError,
    MeasurementError,
    PlannerError,
)
from planner.model.fitting import Sweep
from planner.model.measured import COLLECTIVES
from planner.runtime.measuring import beside
from planner.runtime.measuring.beside import measure_interference
from planner.runtime.measuring.sweep import SAMPLE_NS, measure_network, transfer
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.launching import errors, launch, values

SIZES = (64, 1024, 20_000)
SLOW_S = 0.02
SHORT_NS = 1_000_000


class Counting:
    """Sends nothing; takes its time on one rank."""

    name = "counting"

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.calls: list[tuple[int, int]] = []

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        self.calls.append((4 * flat.numel(), depth))
        time.sleep(SLOW_S if self.rank == 1 else SAMPLE_NS / 1e9)


def transferred(world: World, elements: int) -> dict[str, tuple[list[float], list[float]]]:
    """Carry out each collective with numbers that tell ranks and places apart."""
    numbers: dict[str, tuple[list[float], list[float]]] = {}
    for collective in COLLECTIVES:
        room = torch.zeros(2, elements + world.size)
        run, sent, taken = transfer(world, collective, elements, room, depth=2)
        sent += torch.arange(sent.numel()) + 1000 * (world.rank + 1)
        before = sent.tolist()
        run()
        numbers[collective] = before, taken.tolist()
    return numbers


def measure(elements: int) -> tuple[Any, list[Sweep], list[tuple[int, int]], list[int]]:
    world = join(20)
    numbers = transferred(world, elements)
    counting = Counting(world.rank)
    done: list[int] = []
    sweeps = [
        measure_network(world, sizes=SIZES, repetitions=3, depths=(1, 2), sample_ns=SHORT_NS),
        measure_network(world, "all_gather", SIZES, 2, sample_ns=SHORT_NS),
        measure_network(world, "reduce_scatter", SIZES, 2, warmup=1, sample_ns=SHORT_NS),
        measure_network(
            world,
            counting,
            SIZES[:2],
            3,
            sample_ns=SAMPLE_NS,
            progress=lambda now, of: done.append(100 * now + of),
        ),
    ]
    world.leave()
    return numbers, sweeps, counting.calls, done


class Failing:
    """Fails on one rank."""

    name = "failing"

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        if self.rank == 1:
            raise RuntimeError("the cable is gone")


def misuse(what: str) -> None:
    world = join(20)
    sizes = SIZES[: 2 + world.rank] if what == "sizes" else SIZES
    collective: Any = "all_gather" if what == "collective" and world.rank else "all_reduce"
    if what.startswith("fail"):
        collective = Failing(world.rank)
    try:
        if what == "fail beside computation":
            measure_interference(world, collective, (64, 4096), 1)
        else:
            measure_network(world, collective, sizes, 2)
    finally:
        world.leave()


RATE = 4_000_000
"""Bytes per second that a shaped link lets through; it saves up those of 8 ms."""


class Shaped:
    """A link behind a token bucket: after a pause it passes some bytes at once."""

    name = "shaped"

    def __init__(self) -> None:
        self._empty_at = time.monotonic()  # when what has been sent is through

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        now = time.monotonic()
        self._empty_at = max(self._empty_at, now - 0.008) + 4 * flat.numel() / RATE
        time.sleep(max(self._empty_at - now, 0))


def shaped() -> list[float]:
    """Return how much faster than the link each size was timed."""
    with join(20) as world:
        sweep = measure_network(world, Shaped(), (64, 4000, 40_000), 3)
    rates = [(one.size_bytes, sorted(one.times_ns)[1]) for one in sweep.timings]
    return [size / time_ns * 1e9 / RATE for size, time_ns in rates]


@pytest.mark.slow
def test_samples_begin_behind_a_burst() -> None:
    for faster in values(launch(shaped, 2)):
        assert max(faster) < 1.2


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "elements"), [(2, 5), (3, 7)])
def test_a_sweep(ranks: int, elements: int) -> None:
    results = values(launch(measure, ranks, elements))
    numbers = [result[0] for result in results]
    share = -(-elements // ranks)

    sent = [rank["all_reduce"][0] for rank in numbers]
    assert [len(vector) for vector in sent] == [elements] * ranks
    total = [sum(column) for column in zip(*sent, strict=True)]
    assert [rank["all_reduce"][1] for rank in numbers] == [total] * ranks

    shares = [rank["all_gather"][0] for rank in numbers]
    assert [len(vector) for vector in shares] == [share] * ranks
    batch = [number for vector in shares for number in vector]
    assert [rank["all_gather"][1] for rank in numbers] == [batch] * ranks

    batches = [rank["reduce_scatter"][0] for rank in numbers]
    assert [len(vector) for vector in batches] == [share * ranks] * ranks
    total = [sum(column) for column in zip(*batches, strict=True)]
    kept = [number for rank in numbers for number in rank["reduce_scatter"][1]]
    assert kept == pytest.approx([number / ranks for number in total])

    assert all(result[1] == results[0][1] for result in results)  # all ranks return the same
    ring, pull, push, other = results[0][1]
    assert [(sweep.collective, sweep.algorithm) for sweep in (ring, pull, push, other)] == [
        ("all_reduce", "ring"),
        ("all_gather", "gloo"),
        ("reduce_scatter", "gloo"),
        ("all_reduce", "counting"),
    ]
    assert ring.ranks == ranks
    assert [(timing.depth, timing.size_bytes) for timing in ring.timings] == [
        (depth, size) for depth in (1, 2) for size in SIZES
    ]
    assert {len(timing.times_ns) for timing in ring.timings} == {3}
    assert {len(timing.times_ns) for timing in push.timings} == {2}
    for sweep in (ring, pull, push):
        assert all(time > 0 for timing in sweep.timings for time in timing.times_ns)
    for _, sweeps, calls, done in results:
        check_rounds(sweeps, calls, done)


def check_rounds(sweeps: list[Sweep], calls: list[tuple[int, int]], done: list[int]) -> None:
    """Check that rounds go back and forth, and that the slowest rank counts."""
    once = [(size, 1) for size in SIZES[:2]]
    there = [call for call in once for _ in range(2)]  # the first one untimed
    back = there[::-1]
    assert calls == [*once, *back, *there, *back, *there]  # 2 to warm up, 3 measured
    assert done == [105, 205, 305, 405, 505]
    times = [time for timing in sweeps[-1].timings for time in timing.times_ns]
    assert min(times) >= SLOW_S * 1e9  # a rank cannot have slept less


@pytest.mark.parametrize(
    ("ranks", "what", "error", "text"),
    [
        (3, "sizes", DisagreementError, "do not agree on the sweep"),
        (2, "collective", DisagreementError, "do not agree on the sweep"),
        (2, "fail", CommunicationError, "the cable is gone"),
        (2, "fail beside computation", CommunicationError, "the cable is gone"),
        (1, "alone", MeasurementError, "start at least 2"),
    ],
)
def test_all_ranks_are_told_what_is_wrong(
    ranks: int, what: str, error: type[PlannerError], text: str
) -> None:
    for one in errors(launch(misuse, ranks, what)):
        assert one.type == error.__name__
        assert text in one.text


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"collective": "broadcast"}, "collective: expected one of all_reduce, all_gather"),
        ({"sizes": (64,)}, "sizes: expected at least two"),
        ({"sizes": (64, 130)}, r"sizes\[1\]: expected increasing multiples of 4, got 130"),
        ({"sizes": (64, 64)}, r"sizes\[1\]: expected increasing"),
        ({"sizes": (0, 64)}, r"sizes\[0\]"),
        ({"repetitions": 0}, "repetitions: expected an integer >= 1"),
        ({"warmup": 0}, "warmup"),
        ({"depths": (2, 4)}, "depths: expected increasing depths from 1"),
        ({"depths": (1, 4, 2)}, "depths: expected increasing depths from 1"),
        ({"depths": (1, 65)}, "depths: expected increasing depths from 1, at most 64"),
        ({"depths": (1, 2), "collective": "all_gather"}, "depths: only an all-reduce is cut"),
    ],
)
def test_bad_arguments(change: dict[str, Any], expected: str) -> None:
    nobody = cast("World", None)
    with pytest.raises(InvalidInputError, match=expected):
        measure_network(nobody, **{"sizes": SIZES, **change})


def measure_beside() -> tuple[Any, list[int]]:
    beside.SAMPLE_S = 0.05
    done: list[int] = []
    with join(20) as world:
        return measure_interference(
            world, "all_reduce", (64, 4096), 1, progress=lambda now, of: done.append(10 * now + of)
        ), done


@pytest.mark.slow
def test_all_ranks_find_the_same_interference() -> None:
    (first, done), (second, _) = values(launch(measure_beside, 2))
    assert first == second
    assert first.slowdown >= 1
    assert done == [12, 22]
