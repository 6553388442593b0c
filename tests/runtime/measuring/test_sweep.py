"""Timing collectives among the ranks of a job: what is sent, who agrees, what is refused."""

import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch.distributed import ReduceOp

from planner.jsonio import encode_profile
from planner.model.contention import Interference
from planner.model.errors import (
    CommunicationError,
    DisagreementError,
    InvalidInputError,
    MeasurementError,
    PlannerError,
)
from planner.model.layers import Layer
from planner.model.measured import COLLECTIVES
from planner.model.profiles import Profile, Provenance
from planner.runtime.collectives.ring import Ring
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.trace import Event, Trace
from planner.runtime.measuring import contention
from planner.runtime.measuring.contention import (
    _Clock,
    _fitted,
    _Round,
    _Sample,
    measure_interference,
    passes_of,
)
from planner.runtime.measuring.slowest import slowest_profile
from planner.runtime.measuring.sweep import SAMPLE_NS, measure_network, transfer
from planner.runtime.world.world import World
from tests.runtime.jobs import in_each_rank

SIZES = (64, 1024, 20_000)
SLOW_S = 0.02
SHORT_NS = 1_000_000


class Own:
    """An all-reduce of one's own, which sends nothing."""

    def __init__(self, name: str, call: Callable[[int, int], None]) -> None:
        self.name, self._call = name, call

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        self._call(4 * flat.numel(), depth)


def test_the_profile_of_a_job_is_that_of_its_slowest_rank() -> None:
    """Of two ranks; the other's times are what it gives."""
    provenance = Provenance("synthetic", "test")
    own = Profile("own", (Layer("one", 2, 3, 8),), provenance)
    for name, backward, expected in (("slow", 4, "slow"), ("fast", 2, "own")):
        other = Profile(name, (Layer("one", 2, backward, 8),), provenance)
        given = {"its time": str(2 + backward), "its profile": encode_profile(other)}
        world: Any = Mock(size=2)
        world.gather = lambda what, value, given=given: (value, given[what])
        found = slowest_profile(world, own)
        assert found.name == expected
        assert "2 ranks at the same time" in found.provenance.notes[0]


@in_each_rank(3)
def test_collectives_bring_what_they_are_named_after(world: World) -> None:
    """The numbers tell ranks and places apart."""
    ranks, elements = world.size, 7
    share = -(-elements // ranks)
    for collective in COLLECTIVES:
        room = torch.zeros(2, elements + ranks)
        run, sent, taken = transfer(world, collective, elements, room, depth=2)
        number = sent + torch.arange(sent.numel())
        vectors = [number + 1000 * (rank + 1) for rank in range(ranks)]
        sent.copy_(vectors[world.rank])
        run()
        if collective == "all_gather":
            assert sent.numel() == share
            assert torch.equal(taken, torch.cat(vectors))
        elif collective == "all_reduce":
            assert sent.numel() == elements
            assert torch.equal(taken, sum(vectors, torch.zeros(elements)))
        else:
            assert vectors[0].numel() == share * ranks
            mine = slice(world.rank * share, (world.rank + 1) * share)
            expected = sum(vectors, torch.zeros(share * ranks))[mine] / ranks
            torch.testing.assert_close(taken, expected)


@pytest.mark.slow
@in_each_rank()
def test_a_sweep(world: World) -> None:
    """Rounds go back and forth, the slowest rank counts, and all ranks return the same."""
    calls, done = list[tuple[int, int]](), list[int]()

    def call(size: int, depth: int) -> None:
        calls.append((size, depth))
        time.sleep(SLOW_S if world.rank == 1 else SAMPLE_NS / 1e9)

    sweeps = [
        measure_network(world, sizes=SIZES, repetitions=3, depths=(1, 2), sample_ns=SHORT_NS),
        measure_network(world, "all_gather", SIZES, 2, sample_ns=SHORT_NS),
        measure_network(world, "reduce_scatter", SIZES, 2, warmup=1, sample_ns=SHORT_NS),
        measure_network(
            world,
            Own("counting", call),
            SIZES[:2],
            3,
            sample_ns=SAMPLE_NS,
            progress=lambda now, of: done.append(100 * now + of),
        ),
    ]
    world.agree("the sweeps", repr(sweeps))
    ring, pull, push, other = sweeps
    assert (ring.collective, ring.algorithm) == ("all_reduce", "ring")
    assert (pull.collective, pull.algorithm) == ("all_gather", "gloo")
    assert (push.collective, push.algorithm) == ("reduce_scatter", "gloo")
    assert (other.collective, other.algorithm) == ("all_reduce", "counting")
    assert ring.ranks == world.size
    assert [(timing.depth, timing.size_bytes) for timing in ring.timings] == [
        (depth, size) for depth in (1, 2) for size in SIZES
    ]
    for sweep, repetitions in ((ring, 3), (pull, 2), (push, 2)):
        assert {len(timing.times_ns) for timing in sweep.timings} == {repetitions}
        assert all(time > 0 for timing in sweep.timings for time in timing.times_ns)
    once = [(size, 1) for size in SIZES[:2]]
    there = [call for call in once for _ in range(2)]  # the first one untimed
    back = there[::-1]
    # Two rounds warm up, three are measured.
    assert calls == [*once, *back, *there, *back, *there]
    assert done == [105, 205, 305, 405, 505]
    times = [time for timing in other.timings for time in timing.times_ns]
    assert min(times) >= SLOW_S * 1e9  # a rank cannot have slept less


@pytest.mark.slow
@in_each_rank()
def test_samples_begin_behind_a_burst(world: World) -> None:
    """A token bucket passes bytes of 8 ms at once; no size is timed much faster than the link."""
    rate = 4_000_000  # bytes per second
    empty_at = time.monotonic()  # when what has been sent is through

    def call(size: int, _: int) -> None:
        nonlocal empty_at
        now = time.monotonic()
        empty_at = max(empty_at, now - 0.008) + size / rate
        time.sleep(max(empty_at - now, 0))

    for one in measure_network(world, Own("shaped", call), (64, 4000, 40_000), 3).timings:
        assert one.size_bytes / sorted(one.times_ns)[1] * 1e9 / rate < 1.2


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
@in_each_rank("ranks")
def test_all_ranks_are_told_what_is_wrong(
    world: World, ranks: int, what: str, error: type[PlannerError], text: str
) -> None:
    def fail(*_: int) -> None:
        if world.rank == 1:
            raise RuntimeError("the cable is gone")

    sizes = SIZES[: 2 + world.rank] if what == "sizes" else SIZES
    collective: Any = "all_gather" if what == "collective" and world.rank else "all_reduce"
    if what.startswith("fail"):
        collective = Own("failing", fail)
    run: Callable[[], object] = partial(measure_network, world, collective, sizes, 2)
    if what == "fail beside computation":
        run = partial(measure_interference, world, collective, (64, 4096), 1)
    with pytest.raises(error, match=text):
        run()


def test_bad_arguments() -> None:
    for change, expected in (
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
    ):
        arguments: Any = {"world": None, "sizes": SIZES, **change}
        with pytest.raises(InvalidInputError, match=expected):
            measure_network(**arguments)


# ---
# Interference, from transfers alone and beside computation.


@pytest.mark.slow
@pytest.mark.parametrize(("collective", "least"), [("all_reduce", 2**14), ("all_gather", 2**17)])
@in_each_rank()
def test_all_ranks_find_the_same_interference_of_transfers_that_a_thread_would_poll(
    world: World, collective: Any, least: int
) -> None:
    """Where all threads wait asleep, the times of small transfers alone would be too long."""
    contention.SAMPLE_S = 0.01
    seen, done = list[int](), list[int]()
    fitted = contention._fitted

    def noticed(sizes: Sequence[int], samples: Sequence[_Sample]) -> Interference:
        seen.extend(sizes)
        return fitted(sizes, samples)

    contention._fitted = noticed
    found = measure_interference(
        world, collective, rounds=1, progress=lambda now, of: done.append(10 * now + of)
    )
    world.agree("the interference", repr(found))
    assert found.slowdown >= 1
    assert done == [12, 22]
    assert seen == [size for size in contention.SIZES if size >= least]
    assert seen[-1] == 2**23


@pytest.mark.parametrize(
    "interference",
    [
        Interference(40_000, Fraction(3, 10), Fraction(11, 10), 5 * 10**6),
        Interference(900_000, Fraction(13, 2), Fraction(1), 5 * 10**6),
        Interference(1000, Fraction(1), Fraction(5, 4), 0),
    ],
)
def test_what_was_there_is_found(interference: Interference) -> None:
    """On a network of 40 ns/B, and 2 ms before."""
    sizes = [4096, 2**18, 2**24]
    samples = []
    for size in sizes:
        alone = 2 * 10**6 + 40 * size
        longer = interference.overlapped_ns(alone) - alone
        samples.append(_Sample(interference.processor_ns(size, alone), alone, longer))
    found = _fitted(sizes, samples)
    assert found.startup_ns == pytest.approx(interference.startup_ns, rel=0.01)
    assert found.ns_per_byte == pytest.approx(interference.ns_per_byte, rel=0.01)
    # The largest transfer is delayed, too: less than a hundredth of what it lasts.
    assert found.slowdown == pytest.approx(interference.slowdown, abs=0.01)
    assert found.delay_ns == pytest.approx(interference.delay_ns, rel=0.02, abs=1000)


def test_passes_without_transfers_are_not_the_transfers_and_noise_is_not_negative() -> None:
    overlapped = _Round(alone_ns=5.0, overlapped_ns=7.0, lasted_ns=100.0, passes=4.0)
    assert overlapped.sample(20.0) == _Sample(20.0, 5.0, 2.0)
    assert overlapped.sample(30.0) == _Sample(0.0, 5.0, 2.0)
    faster = [_Sample(0.0, 1e6 * number, -1e3) for number in (1, 2, 3)]
    assert _fitted([4096, 2**18, 2**24], faster) == Interference(1)


def test_passes_beside_transfers_copy_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the same messages each time, and then the model is as before."""
    model, ticks, copies = torch.nn.Linear(3, 2), list[int](), list[int]()
    multiplied = torch.mul

    def noticed(values: Tensor, factor: float, *, out: Tensor) -> Tensor:
        copies.append(out.data_ptr())
        return multiplied(values, factor, out=out)

    monkeypatch.setattr(torch, "mul", noticed)
    compute = passes_of(model, (torch.ones(4, 3),))
    for _ in range(2):
        compute(lambda: ticks.append(len(copies)))
    assert ticks == [0, 1, 2, 2, 3, 4]  # before the module, and after each copied gradient
    assert copies[:2] == copies[2:]
    model(torch.ones(4, 3)).sum().backward()
    assert len(copies) == 4


def test_messages_beside_computation_take_turns() -> None:
    """A message that was touched just before would be found in a cache."""
    begun = list[int]()
    group = Mock(allreduce=lambda pieces: begun.append(pieces[0].data_ptr()))
    tickets = contention._transfers(Mock(), Ring(group), 5, 11)(4, False)
    for ticket in tickets:
        assert not ticket.ready
        assert ticket.begin is not None
        ticket.begin()
    assert len({*begun[:3]}) == 3
    assert begun[3] == begun[0]


def test_a_transfer_counts_from_when_the_last_rank_has_begun_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other rank begins the first transfer later, and is ahead with the second one."""
    other = torch.tensor([(15, 40), (35, 80)])

    def all_reduce(times: Tensor, *, op: object, group: object) -> None:
        assert op is ReduceOp.MAX
        times.copy_(times.maximum(other))

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    trace = Trace()
    trace.add(Event("transfer", 0, 0, 110, 138))
    trace.add(Event("transfer", 0, 1, 138, 179))
    assert _Clock(Mock(), Mock(), Mock(), trace)._lasted(100) == (40 - 15) + (80 - 40)


def test_overlapped_transfers_are_released_at_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """By passes of 10 ns with a tick each, a transfer of 30 ns alone leaves every 40 ns."""
    now, released, trace = 0, list[tuple[int, int]](), Trace()
    monkeypatch.setattr(contention, "time", Mock(monotonic_ns=lambda: now))
    monkeypatch.setattr("torch.distributed.barrier", lambda **_: None)

    def compute(tick: Callable[[], object]) -> None:
        nonlocal now
        tick()
        now += 10

    def release(ticket: Ticket) -> None:
        released.append((ticket.batch, now))
        trace.add(Event("transfer", 0, ticket.batch, now, now + 35))
        ticket.done = True

    clock = _Clock(Mock(), compute, Mock(release=release), trace)

    def made(count: int, ready: bool) -> list[Ticket]:
        return [Ticket(int, 0, number, ready=ready) for number in range(count)]

    overlapped_ns, lasted_ns, passes = clock.together(made, 4, 30.0)
    assert released == [(0, 0), (1, 40), (2, 80), (3, 120)]
    assert (overlapped_ns, lasted_ns, passes) == (35.0, 130 / 4, 13 / 4)
