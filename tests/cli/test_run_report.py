"""What is said while something runs, and of what was measured."""

import io
import sys
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from planner.cli import network_report, run_report
from planner.cli.common import ERROR_SIGN
from planner.cli.run_report import Ran, against, as_json, other_threads, report
from planner.model.fitting import Sweep, Timing, fit_network
from planner.runtime.measuring.measured import StepTime
from planner.solving.diagnostics import MeasurementConditions
from planner.view import progress
from planner.view.progress import Progress


class Trial(tuple[tuple[Any, ...], int]):
    """A run of one step, without transfers."""

    __slots__ = ()
    warmup = 0
    steps: ClassVar[tuple[StepTime, ...]] = (StepTime(1, 0, 0, 0, 1),)


def test_other_threads_than_the_profile_s_are_a_warning() -> None:
    for profiled, each, said in (
        (2, (1, 1), ["measured with 2 threads, a rank here computes with 1 thread: give"]),
        (2, (1, 2), ["measured with 2 threads, a rank here computes with 1 to 2 threads: give"]),
        (2, (2, 2), []),
        (UNSET, (2, 2), []),
    ):
        plan: Any = SimpleNamespace(profile_threads=profiled)
        warnings = other_threads([plan], each)
        assert len(warnings) == len(said)
        assert all(part in text for part, text in zip(said, warnings, strict=True))


def test_a_busy_machine_is_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_report, "_collective", lambda _: "ring(2)")
    options = SimpleNamespace(model="m", optimizer="sgd", bcube=None, plans=[])
    answer = SimpleNamespace(headline=str, profile_threads=UNSET, warnings=(), problem="caramel")

    def ran(others: float) -> Ran:
        machine = MeasurementConditions(threads=2, processors=2, others=others)
        parts: tuple[Any, ...] = (options, [answer], [Trial(((), 0))], [], (1, 1), machine)
        return Ran(*parts)

    said = report(ran(1.5)).splitlines()[-1]
    assert said.startswith("warning: other processes kept 1.5 of 2 processors busy")
    assert said.endswith("measure again without them")
    told = msgspec.json.decode(as_json(ran(1.5)))["warnings"]
    assert told == [said.removeprefix("warning: ")]
    assert "other processes" not in report(ran(0.1))


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=9))
def test_no_difference_exactly_if_1_lies_between(ratios: list[float]) -> None:
    """All n rounds fall on one side of the median with probability 2 / 2^n."""
    interval = against(ratios)
    assert interval.low <= interval.median <= interval.high
    one_side = all(ratio > 1 for ratio in ratios) or all(ratio < 1 for ratio in ratios)
    assert interval.differs == (one_side and len(ratios) > 1)
    assert interval.confidence == pytest.approx(1 - 2 / 2 ** len(ratios))


STEADY = [
    Timing(64, 1, (1000, 1010, 990)),
    Timing(1000, 1, (2000, 2000, 2000)),
    Timing(4_000_000, 1, (9_000_000, 9_000_000, 9_100_000)),
]


def reported(timings: list[Timing]) -> list[str]:
    found = Sweep("all_reduce", "ring", 4, 2, 3, tuple(timings))
    return network_report.report(found, fit_network(found)).splitlines()


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
    noisy = [Timing(one.size_bytes, 2, (one.median_ns, 3 * one.median_ns)) for one in STEADY]
    lines = reported([*STEADY, *noisy])
    assert [line.split()[1] for line in lines[4:10]] == ["1"] * 3 + ["2"] * 3
    assert lines[-1].startswith("3 of 6 spreads are above 50%")


LONG_S = progress._LONG_S
"""Before the fixture of all tests here turns progress off."""
PARTS = [("part", place, 4) for place in range(1, 5)]


def shown(
    seconds: float, patch: pytest.MonkeyPatch, parts: Any = PARTS, **options: bool
) -> list[str]:
    """Return the progress lines of parts that take this many seconds each."""
    screen, now, terminal = io.StringIO(), [0.0], options.pop("terminal", True)
    patch.setattr(screen, "isatty", lambda: terminal)
    patch.setattr(sys, "stderr", screen)
    patch.setattr("planner.view.progress._LONG_S", LONG_S)
    meter = Progress(clock=lambda: now[0], **options)
    for part in parts:
        meter(*part)
        now[0] += seconds
    meter.done()
    return screen.getvalue().split("\r\x1b[K") if terminal else screen.getvalue().splitlines()


def test_a_terminal_has_one_line_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    second, third = "part 2 of 4, about 20 s left", "part 3 of 4, about 10 s left"
    assert shown(10, monkeypatch) == ["", "part 1 of 4", second, third, "part 4 of 4", ""]
    assert "part 2 of 4, about 10 min left" in shown(300, monkeypatch)
    assert "left" not in "".join(shown(1, monkeypatch))  # soon over


def test_elsewhere_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, lines in (
        (20, ["planner: part 2 of 4, about 40 s left", "planner: part 4 of 4"]),
        (5, ["planner: part 2 of 4, about 10 s left"]),
        (1, []),
    ):
        assert shown(seconds, monkeypatch, terminal=False) == lines


def test_texts_may_count_themselves_and_parts_may_be_more(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = [(f"planning {name} ({n} of 3)",) for n, name in enumerate(("ring", "ps", "bml"), 1)]
    lines = ["planning ring (1 of 3)", "planning ps (2 of 3), about 20 s left"]
    assert shown(10, monkeypatch, methods)[1:3] == lines
    lines = ["run 13 of 13", "run 14, more than the 13 planned"]
    assert shown(0, monkeypatch, [("run", 13, 13), ("run", 14, 13)])[1:3] == lines


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_is_said_if_asked(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not "".join(shown(100, monkeypatch, terminal=terminal, quiet=True))
