"""How long transfers are timed, on simulated links and on an emulated one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import pytest
from emulated_hosts import Layout
from emulated_network import cluster
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("torch")

from planner.runtime.measuring.sweep import SAMPLE_NS, Sample, settle
from tests.runtime.launching import launch

emulated = pytest.mark.emulated

RATE = 20_000_000
SIZES = (64, 65_536)
"""The first one lets the link recover; a burst of 32 KiB is half of the second."""


@dataclass
class Bucket:
    """A link that passes `burst` bytes at full speed, and then `rate` bytes a second."""

    size: int
    burst: int
    rate: float
    line: float = 1.25e9
    latency_ns: int = 50_000
    factors: Sequence[float] = (1.0,)
    series: list[int] = field(default_factory=list)

    def __call__(self, count: int) -> list[int]:
        self.series.append(count)
        return self._run(count, self.burst)

    def _run(self, count: int, tokens: float) -> list[int]:
        times = []
        for number in range(count):
            short = max(self.size - tokens, 0.0)
            seconds = self.size / self.line + short / self.rate + self.latency_ns / 1e9
            refilled = max(tokens - self.size, 0.0) + self.rate * (self.latency_ns / 1e9)
            tokens = min(refilled, self.burst)
            times.append(round(seconds * 1e9 * self.factors[number % len(self.factors)]))
        return times

    def measured(self, sample: Sample) -> float:
        return fmean(self._run(sum(sample), self.burst)[sample.lead :])

    def steady(self) -> float:
        return self._run(100, 0)[-1] / self.factors[99 % len(self.factors)]


def test_a_link_without_bursts_takes_the_shortest_samples() -> None:
    for once_ns in (20_000, 1_000_000, 30_000_000, 400_000_000):
        link = Bucket(0, 0, 1.0, latency_ns=once_ns)
        sample = settle(link, once_ns)
        assert sample == Sample(0, min(max(1, SAMPLE_NS // once_ns), 500))


def test_a_single_long_transfer_is_enough() -> None:
    assert settle(lambda _: pytest.fail("no series is needed"), 10**9) == Sample(0, 1)


@given(
    size=st.integers(64, 4_000_000),
    burst=st.integers(0, 4_000_000),
    rate=st.floats(5e6, 1e9),
    mistaken=st.sampled_from([1, 30]),
)
@example(3242, 1_110_069, 33_545_095.0, 1)  # it is refilled, and lasts for 709 of 1,000 transfers
def test_bursts_are_spent_before_times_count(
    size: int, burst: int, rate: float, mistaken: int
) -> None:
    link = Bucket(size, burst, rate)
    (once,) = link(1)
    sample = settle(link, once * mistaken)
    _, *series = link.series
    # Without a series, of a transfer said to be long, nothing is promised.
    if series and min(link(series[-1])[series[-1] // 2 :]) >= 0.99 * link.steady():
        assert link.measured(sample) >= 0.94 * link.steady()


def test_disturbances_do_not_hide_a_burst() -> None:
    link = Bucket(8192, 32_768, 12.5e6, factors=(1, 1.1, 1, 1, 8, 1, 0.98, 1, 1.05))
    sample = settle(link, 60_000)
    assert sample.lead * 8192 >= 32_768 - 8192
    quiet = Bucket(8192, 32_768, 12.5e6)
    assert quiet.measured(sample) >= 0.94 * quiet.steady()


def time_transfers() -> float:
    """Time until the link was not faster than its rate: processes that stall let it recover."""
    from planner.runtime.measuring.sweep import measure_network
    from planner.runtime.world.joining import join

    world = join(30)
    try:
        for _ in range(4):
            sweep = measure_network(world, sizes=SIZES, repetitions=5)
            # A ring of two sends each byte once, and headers.
            ratio = sweep.timings[-1].median_ns / (8e9 * SIZES[-1] / RATE)
            if ratio >= 1:
                break
    finally:
        world.leave()
    return ratio


@pytest.mark.slow
@emulated
def test_transfers_are_not_timed_faster_than_the_link_is() -> None:
    pytest.importorskip("torch")
    with cluster(Layout.flat(2), RATE) as hosts:
        outcomes = launch(time_transfers, 2, hosts=hosts)
    for outcome in outcomes:
        assert outcome.error is None, outcome.error
        assert outcome.value >= 1
