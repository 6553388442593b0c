"""Bar charts: every bar and text is there, in proportion, and nothing lies on anything else."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.solving.views import Compared
from planner.view.bars import Bars
from planner.view.chart import Chart
from planner.view.drawing import DRAWINGS
from planner.view.panels import compared as panels_of_times
from tests.draw.reading import saved

BarChart: TypeAlias = Chart[tuple[Compared, ...]]


def comparison_bars(title: str, rows: Iterable[Compared], bound: int | None = None) -> BarChart:
    return Chart(title, tuple(rows), bound)


def panels_of(chart: BarChart) -> Sequence[Bars]:
    (row,) = panels_of_times(chart)
    return row


def text_bars(chart: BarChart, width: int = 80) -> str:
    return DRAWINGS["bml"].text(chart, width)


def names_in(chart: BarChart) -> list[str]:
    return [row.name for row in panels_of(chart)[0].rows]


def compared(bound: int | None = 95_000_000, longest: int = 2 * 10**9) -> BarChart:
    rows = [
        Compared("ring_fattree", "fattree", longest, 15),
        Compared("bml_bcube", "bcube", 98_000_000, 6),
        Compared("halving_doubling_fattree", "fattree", 411_000_000, 15),
        Compared("ps_bcube", "bcube", 146_000_000, 6),
        Compared("ps_fattree", "fattree", 195_000_000, 15),
    ]
    return comparison_bars("548 MB on 9 servers", rows, bound)


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=9).filter(any), st.integers(60, 150))
def test_text_bars_are_in_proportion(switches: list[int], width: int) -> None:
    rows = [Compared(f"g{place}", "bcube", place, count) for place, count in enumerate(switches)]
    lines = text_bars(comparison_bars("c", rows), width).split("\n\n")[2].splitlines()[1:]
    lengths = [line.count("█") for line in lines]
    longest = max(lengths)
    assert all(len(line) == width for line in lines)
    for length, count in zip(lengths, switches, strict=True):
        assert abs(length - count / max(switches) * longest) <= 0.5 + 1e-9


def test_comparison_is_sorted_and_says_what_is_what() -> None:
    chart = compared()
    names = names_in(chart)
    assert (names[0], names[-1]) == ("bml_bcube", "ring_fattree")
    text = text_bars(chart, 100)
    assert lines_with(text, "bml_bcube", "98 ms")
    assert lines_with(text, "bml_bcube", " 6")
    assert lines_with(text, "lower bound on BCube 95 ms", "░")
    assert "lower bound" not in text_bars(compared(bound=None), 100)


def test_ties_are_sorted_by_switches_and_then_by_name() -> None:
    rows = [Compared("b", "fattree", 5, 3), Compared("a", "fattree", 5, 3)]
    rows.append(Compared("c", "bcube", 5, 2))
    for order in (rows, rows[::-1]):
        assert names_in(comparison_bars("t", order)) == ["c", "a", "b"]


def test_a_bound_above_all_bars_is_in_sight() -> None:
    chart = comparison_bars("c", [Compared("g", "bcube", 10**6, 1)], 4 * 10**6)
    assert panels_of(chart)[0].longest == 4.0
    lines = text_bars(chart, 60).splitlines()
    assert 4 * lines[3].count("█") == pytest.approx(lines[4].count("░"), abs=2)


def test_counts_that_do_not_fit_are_rounded() -> None:
    rows = [Compared("a", "bcube", 1, 10**9 - 1), Compared("b", "fattree", 1, 5 * 2**60)]
    text = text_bars(comparison_bars("c", rows), 100)
    assert "999,999,999" in text
    assert "5.76e+18" in text


@pytest.mark.parametrize("chart", [compared(), compared(bound=None)])
def test_pictures_have_all_words(chart: BarChart, tmp_path: Path) -> None:
    picture = saved("bml", chart, tmp_path)
    for panel in panels_of(chart):
        assert {panel.title, panel.unit, *(row.text for row in panel.rows)} <= set(picture.words)
    names = [row.name for row in chart.view]
    assert {chart.title, "BCube", "Fat-Tree", *names} <= set(picture.words)
    bounded = any(text.startswith("lower bound") for text in picture.words)
    assert bounded == (chart.lower_bound_ns is not None)


def test_bars_are_as_long_as_their_values_and_apart(tmp_path: Path) -> None:
    chart, colours = compared(), ("#56B4E9", "#E69F00")
    (times, _), picture = panels_of(chart), saved("bml", chart, tmp_path)
    bars = [rect for rect in picture.rects if rect.look == "apart" and rect.x < 550]
    assert len(bars) == len(times.rows)
    assert all(colour in picture.source for colour in colours)
    for bar, value in zip(bars, times.values, strict=True):
        assert bar.width == pytest.approx(value / times.longest * bars[-1].width, abs=0.02)
    assert all(a.y + a.height <= b.y for a, b in pairwise(bars))
