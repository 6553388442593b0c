"""What a person reads of timed communication."""

from planner.cli.common import ERROR_SIGN
from planner.cli.network_report import report
from planner.model.fitting import Sweep, Timing, fit_network

STEADY = [
    Timing(64, 1, (1000, 1010, 990)),
    Timing(1000, 1, (2000, 2000, 2000)),
    Timing(4_000_000, 1, (9_000_000, 9_000_000, 9_100_000)),
]
NOISY = [Timing(one.size_bytes, 2, (one.median_ns, 3 * one.median_ns)) for one in STEADY]


def reported(timings: list[Timing]) -> list[str]:
    found = Sweep("all_reduce", "ring", 4, 2, 3, tuple(timings))
    return report(found, fit_network(found)).splitlines()


def test_a_row_for_each_size_and_each_model() -> None:
    lines = reported(STEADY)
    assert lines[0].startswith("all_reduce (ring) among 4 ranks: medians of 3 rounds")
    assert lines[0].endswith(f"errors of the models: {ERROR_SIGN}")
    rows = [line.split() for line in lines[4:7]]
    assert [row[:5] + row[6:] for row in rows] == [
        ["64", "1", "µs", "1.0%", "+0.0%", "+0.0%"],
        ["1,000", "2", "µs", "0.0%", "+0.0%", "+55.3%"],
        ["4,000,000", "9", "ms", "0.6%", "+0.0%", "+0.0%"],
    ]
    assert lines[-1].startswith("64 B, 4 MB  ")
    # (9,000,000 - 1000) / 3,999,936 ns a byte, 64 of which are not start-up; 3106 ns for 1000 B
    assert "856 ns, 2.25 ns" in lines[-1]
    assert lines[-1].split()[-3:] == ["18.4%", "55.3%", "1,000"]


def test_depths_and_noise_are_shown() -> None:
    lines = reported([*STEADY, *NOISY])
    assert [line.split()[1] for line in lines[4:10]] == ["1"] * 3 + ["2"] * 3
    assert lines[-1].startswith("3 of 6 spreads are above 50%")
