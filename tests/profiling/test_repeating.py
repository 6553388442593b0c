"""Repetitions go on until they are steady, and the steadiest count; times are made up."""

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from planner.model import machine
from planner.profiling.timing import Run, others_in, repeated, spread_of, warnings_of
from planner.solving.diagnostics import Spread
from tests.profiling.models import linear, measured


def run_of(forward: int, backward: int) -> Run:
    return Run((forward, backward), [forward], [backward], [None], [forward], [backward])


def runs_of(times: list[int]) -> Iterator[Run]:
    return iter([run_of(time, 2 * time) for time in times])


def test_steady_times_are_not_repeated() -> None:
    runs = runs_of([100, 101, 100, 102])
    first, spread = repeated(lambda: next(runs), 4, lambda: pytest.fail("asked"))
    assert first == 0
    assert spread is not None
    assert spread.excess < 1


def test_repeated_until_the_load_is_gone() -> None:
    runs = runs_of([100, 900, 300, 700, 100, 100, 101, 100, 5])
    first, spread = repeated(lambda: next(runs), 4, lambda: True)
    assert first == 4
    assert spread is not None
    assert spread.total < 0.01
    assert next(runs).whole_ns[0] == 5  # nothing was measured beyond


def test_the_steadiest_count_when_time_is_up() -> None:
    runs, left = runs_of([100, 900, 300, 700, 200, 600]), iter([True, True, False])
    first, spread = repeated(lambda: next(runs), 2, lambda: next(left))
    assert first == 2  # 300 and 700: half the distance over the middle
    assert spread is not None
    assert spread.total == pytest.approx(200 / 500)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=12), st.integers(2, 4))
def test_what_counts_is_the_least_of_all_in_a_row(times: list[int], count: int) -> None:
    count = min(count, len(times))
    all_runs = list(runs_of(times))
    left, tried = iter(all_runs), iter([True] * (len(times) - count) + [False])
    first, spread = repeated(lambda: next(left), count, lambda: next(tried))
    windows = [spread_of(all_runs[at : at + count]) for at in range(len(times) - count + 1)]
    known = [each.excess for each in windows if each is not None]
    done = next((at for at, excess in enumerate(known) if excess <= 1), len(known) - 1)
    assert spread is not None
    assert spread.excess == min(known[: done + 1])
    assert known[first] == spread.excess


def test_one_repetition_tells_no_spread() -> None:
    assert repeated(lambda: run_of(1, 1), 1, lambda: True) == (0, None)
    assert spread_of([run_of(1, 1)]) is None
    assert spread_of([run_of(0, 0)] * 3) == Spread(0, 0)


def test_load_of_short_rounds_is_looked_for_earlier() -> None:
    loads = [machine.Load(time, 0.0, time) for time in (0.0, 0.9, 1.0, 1.1)]
    assert others_in(loads, 0, 3) == pytest.approx(1)
    assert others_in(loads, 2, 3) == pytest.approx(1)  # since 0.9
    assert others_in(loads[2:], 0, 1) is None


def test_layers_that_are_not_the_whole_pass_are_warned_about() -> None:
    """Ten short layers, each held up in one of ten repetitions: medians know of none of them."""
    bare = [(10_100_000, 10_000_000)] * 10
    runs = [run_of(10_100_000, 10_000_000)] * 10
    said = warnings_of(linear(), bare, runs, None, None, (1_900_000, 9_500_000))
    (text,) = (one for one in said if "sum to" in one)
    assert "forward pass sum to 1.9 ms, the whole pass took 10.1 ms" in text


def test_a_profile_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.model.machine.processors", lambda: 1)
    marked = measured(linear(), threads=2)
    assert "2 threads on 1 processor" in marked.provenance.warnings[0]


def test_repetitions_beyond_those_planned_are_counted_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("planner.profiling.timing.spread_of", lambda runs: Spread(len(runs), 1.0))
    counts: list[tuple[int, int]] = []
    enough = iter([True, True, False])
    monkeypatch.setattr(
        "planner.profiling.measuring.repeated",
        lambda one_more, count, _: repeated(one_more, count, lambda: next(enough)),
    )
    measured(linear(), warmup=1, repetitions=2, progress=lambda *count: counts.append(count))
    assert counts == [(run, 3) for run in (1, 2, 3, 4, 5)]
