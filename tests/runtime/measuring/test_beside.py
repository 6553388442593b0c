"""Interference from samples of transfers alone and beside computation."""

from fractions import Fraction

import pytest

from planner.model.contention import Interference
from planner.runtime.measuring.beside import _fitted, _Sample

SIZES = [4096, 2**18, 2**24]


def samples(interference: Interference) -> list[_Sample]:
    """Return what a network of 40 ns/B, and 2 ms before, would show."""
    rows = []
    for size in SIZES:
        alone = 2 * 10**6 + 40 * size
        longer = interference.beside_ns(alone) - alone
        rows.append(_Sample(interference.processor_ns(size, alone), alone, longer))
    return rows


@pytest.mark.parametrize(
    "interference",
    [
        Interference(40_000, Fraction(3, 10), Fraction(11, 10), 5 * 10**6),
        Interference(900_000, Fraction(13, 2), Fraction(1), 5 * 10**6),
        Interference(1000, Fraction(1), Fraction(5, 4), 0),
    ],
)
def test_what_was_there_is_found(interference: Interference) -> None:
    found = _fitted(SIZES, samples(interference))
    assert found.startup_ns == pytest.approx(interference.startup_ns, rel=0.01)
    assert found.ns_per_byte == pytest.approx(interference.ns_per_byte, rel=0.01)
    # The largest transfer is delayed, too: less than a hundredth of what it lasts.
    assert found.slowdown == pytest.approx(interference.slowdown, abs=0.01)
    assert found.delay_ns == pytest.approx(interference.delay_ns, rel=0.02, abs=1000)


def test_noise_makes_nothing_negative() -> None:
    faster = [_Sample(0.0, 1e6 * number, -1e3) for number in (1, 2, 3)]
    assert _fitted(SIZES, faster) == Interference(1)
