"""What the benchmarks of executed steps say about predictions, on numbers worked out by hand."""

import pytest
from runtime_report import Measured, ranking, ratio, summary, table
from runtime_waiting import WaitingModel, load, scaled_units

from planner.runtime.measuring.measured import MeasuredTime


def variant(name: str, predicted_ns: int | None, *rounds: int) -> Measured:
    """Return a variant with rounds of one step each."""
    return Measured(name, predicted_ns, tuple((time,) for time in rounds))


FAST = variant("fast", 100, 110, 112, 111)
SAME = variant("same", 100, 130, 131, 132)
WRONG = variant("wrong", 90, 200, 210, 205)
NOISY = variant("noisy", 150, 109, 300, 111)
UNKNOWN = variant("unknown", None, 1, 1, 1)


def test_pairs_are_ranked_as_measured() -> None:
    ranks = ranking([FAST, SAME, WRONG, NOISY, UNKNOWN])
    # fast–same: predicted equal; fast–wrong and same–wrong: the other way round. Noisy is faster
    # than each of the others in some rounds and slower in others, or as fast.
    assert (ranks.right, ranks.wrong, ranks.tied, ranks.within_noise) == (0, 2, 1, 3)
    assert ranks.tau == pytest.approx(-2 / 3)
    assert [text.split(" (")[0] for text in ranks.mistakes] == [
        "fast against wrong",
        "same against wrong",
    ]


def test_a_right_order_correlates_wholly() -> None:
    ranks = ranking([FAST, variant("slow", 101, 111, 113, 112)])
    assert (ranks.right, ranks.tau) == (1, 1.0)
    assert ranking([FAST, NOISY]).tau is None


def test_ratios_are_taken_round_by_round() -> None:
    one, other = variant("one", None, 20, 90, 40), variant("other", None, 10, 30, 10)
    assert ratio(one, other) == (3, 2, 4)


def test_errors_are_relative_to_the_measurement() -> None:
    assert FAST.error == pytest.approx(-11 / 111)  # predicted too short
    assert FAST.error == MeasuredTime("", FAST.predicted_ns, (FAST.median_ns,)).error
    assert UNKNOWN.error is None
    assert "off by 9.9% (median), 9.9% at worst" in summary([("one", [FAST, UNKNOWN])])
    assert table([FAST, UNKNOWN], "fast").splitlines()[2].startswith("| fast | 100 ns | 111 ns |")


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "gpt2_small", "lenet5"])
def test_scaled_units_keep_times_and_sizes(name: str) -> None:
    profile = load(name)
    units = scaled_units(profile, 0.2, 4e6)
    assert sum(unit.forward_s + unit.backward_s for unit in units) == pytest.approx(0.2)
    assert sum(unit.bytes for unit in units) == pytest.approx(4e6, rel=1e-3)
    assert 0 < len(units) <= len({layer.block for layer in profile.layers})
    counts = [parameter.numel() for parameter in WaitingModel(units).parameters()]
    assert counts == [count for unit in units for count in unit.elements]
