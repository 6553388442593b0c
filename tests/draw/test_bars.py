"""Bar charts: every bar and text is there, in proportion, and nothing lies on anything else."""

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.solving.views import Compared
from planner.view.bars import CUT, BarChart, BarPanel, BarSeries, comparison_bars, save_bars
from planner.view.text import text_bars

TEXT = {"svg.fonttype": "none"}


def grouped(**change: Any) -> BarChart:
    """Two groups of four bars, and two groups of two."""
    times = tuple(
        BarSeries(name, values, tuple(map(str, values)), colour)
        for name, values, colour in (
            ("BML/BCube", (0.9375, 0.999), 5),
            ("PS/BCube", (1.5, 1.938), 0),
            ("Hierarchical/Fat-Tree", (1.875, 1.998), 6),
            ("PS/Fat-Tree", (1.875, 1.998), 1),
        )
    )
    counts = (
        BarSeries("BCube", (8.0, 64.0), ("8", "64"), 5),
        BarSeries("Fat-Tree", (20.0, 320.0), ("20", "320"), 6),
    )
    fields: dict[str, Any] = {
        "title": "two sizes",
        "groups": ("16 servers", "1,024 servers"),
        "panels": (BarPanel("time", "×T_F", times), BarPanel("cost", "switches", counts)),
        "notes": ("BCube(4,2), Fat-Tree(4)", "BCube(32,2), Fat-Tree(16)"),
    }
    return BarChart(**{**fields, **change})


def compared(bound: int | None = 95_000_000, longest: int = 2 * 10**9) -> BarChart:
    rows = [
        Compared("ring_fattree", "fattree", longest, 15),
        Compared("bml_bcube", "bcube", 98_000_000, 6),
        Compared("halving_doubling_fattree", "fattree", 411_000_000, 15),
        Compared("ps_bcube", "bcube", 146_000_000, 6),
        Compared("ps_fattree", "fattree", 195_000_000, 15),
    ]
    return comparison_bars("548 MB on 9 servers", rows, bound)


def saved(chart: BarChart, folder: Path, name: str = "p.svg") -> str:
    mpl = pytest.importorskip("matplotlib")
    with mpl.rc_context(TEXT):
        save_bars(chart, folder / name)
    return (folder / name).read_text(encoding="utf-8")


def drawn(chart: BarChart) -> Any:
    """Return the figure, laid out."""
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from planner.view.bars import _fill
    from planner.view.figure import write_title

    figure = Figure(dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    write_title(figure, chart.title)
    _fill(figure, chart)
    figure.draw_without_rendering()
    return figure


def texts_in(figure: Any) -> list[Any]:
    """Return everything that is written: titles, ticks, axes, bars, legends."""
    texts = [figure._suptitle]
    for axes in figure.axes:
        texts += [axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        texts += axes.get_legend().get_texts()
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            texts += [
                tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
            ]
    renderer = figure.canvas.get_renderer()
    shown = [text for text in texts if text.get_text()]
    return [(one.get_text(), one.get_window_extent(renderer).extents) for one in shown]


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_text_has_a_row_a_bar_under_its_group() -> None:
    lines = text_bars(grouped(), 90).splitlines()
    assert lines[0] == "two sizes"
    assert lines[2] == "time: ×T_F"
    assert lines[3] == "16 servers: BCube(4,2), Fat-Tree(4)"
    assert [line.split()[0] for line in lines[4:8]] == [
        "BML/BCube",
        "PS/BCube",
        "Hierarchical/Fat-Tree",
        "PS/Fat-Tree",
    ]
    assert [line.split()[-1] for line in lines[4:8]] == ["0.9375", "1.5", "1.875", "1.875"]
    assert max(map(len, lines)) == 90


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=9).filter(any),
    st.integers(60, 150),
)
def test_text_bars_are_in_proportion(values: list[float], width: int) -> None:
    one = BarSeries("x", tuple(values), ("t",) * len(values), 0)
    names = tuple(f"g{place}" for place in range(len(values)))
    lines = text_bars(BarChart("c", names, (BarPanel("p", "u", (one,)),)), width).splitlines()[3:]
    lengths = [line.count("█") for line in lines]
    longest = max(lengths)
    assert all(len(line) == width for line in lines)
    for length, value in zip(lengths, values, strict=True):
        assert abs(length - value / max(values) * longest) <= 0.5 + 1e-9


def test_comparison_is_sorted_and_says_what_is_what() -> None:
    chart = compared()
    assert chart.groups[0] == "bml_bcube"
    assert chart.groups[-1] == "ring_fattree"
    assert [one.name for one in chart.panels[0].series] == ["BCube", "Fat-Tree"]
    for panel in chart.panels:
        for place, name in enumerate(chart.groups):
            [own] = [one.name for one in panel.series if one.values[place] is not None]
            assert own == ("BCube" if name.endswith("bcube") else "Fat-Tree")
    text = text_bars(chart, 100)
    assert lines_with(text, "bml_bcube", "98 ms")
    assert lines_with(text, "bml_bcube", " 6")
    assert lines_with(text, "lower bound on BCube 95 ms", "░")
    assert "lower bound" not in text_bars(compared(bound=None), 100)


def test_ties_are_sorted_by_switches_and_then_by_name() -> None:
    rows = [Compared("b", "fattree", 5, 3), Compared("a", "fattree", 5, 3)]
    rows.append(Compared("c", "bcube", 5, 2))
    for order in (rows, rows[::-1]):
        assert comparison_bars("t", order).groups == ("c", "a", "b")


def test_a_few_long_bars_are_cut_and_marked() -> None:
    panel = compared().panels[0]
    assert panel.longest == 3 * 195
    assert panel.axis == f"time (ms); {CUT} cut"
    text = text_bars(compared(), 100)
    assert lines_with(text, "ring_fattree", f"{CUT} 2 s")
    assert len(lines_with(text, CUT)) == 2  # the bar and the axis
    whole = compared(longest=500_000_000)
    assert CUT not in text_bars(whole, 100)
    assert whole.panels[0].longest == 500
    assert CUT not in text_bars(grouped(), 100)


def test_a_bound_above_all_bars_is_in_sight() -> None:
    one = BarSeries("x", (1.0,), ("1",), 0)
    panel = BarPanel("p", "u", (one,), bound=4.0, bound_text="at least 4", limit=2.0)
    assert panel.longest == 4.0
    lines = text_bars(BarChart("c", ("g",), (panel,)), 60).splitlines()
    assert 4 * lines[3].count("█") == pytest.approx(lines[4].count("░"), abs=2)


@pytest.mark.parametrize("horizontal", [False, True])
def test_nothing_takes_time_or_is_known(horizontal: bool, tmp_path: Path) -> None:
    still = BarSeries("x", (0.0, None), ("0 ns", ""), 0)
    panel = BarPanel("p", "u", (still,), bound=0.0, bound_text="0")
    chart = BarChart("c", ("a", "b"), (panel,), horizontal=horizontal)
    assert "0 ns" in text_bars(chart)
    assert "0 ns" in saved(chart, tmp_path)
    assert "0 ns" in text_bars(comparison_bars("c", [Compared("a", "bcube", 0, 1)], 0))


def test_counts_that_do_not_fit_are_rounded() -> None:
    rows = [Compared("a", "bcube", 1, 10**9 - 1), Compared("b", "fattree", 1, 5 * 2**60)]
    text = text_bars(comparison_bars("c", rows), 100)
    assert "999,999,999" in text
    assert "5.76e+18" in text


def test_lengths_must_match() -> None:
    short = BarSeries("x", (1.0,), ("1", "2"), 0)
    with pytest.raises(ValueError, match="x needs a value and a text for each group"):
        BarChart("c", ("a", "b"), (BarPanel("p", "u", (short,)),))
    with pytest.raises(ValueError, match="a note for each group"):
        grouped(notes=("one",))


@pytest.mark.slow
@pytest.mark.parametrize("chart", [grouped(), compared(), compared(bound=None)])
def test_pictures_have_all_words_and_are_the_same_each_time(
    chart: BarChart, tmp_path: Path
) -> None:
    text = saved(chart, tmp_path)
    if chart.notes:
        assert text == saved(chart, tmp_path, "again.svg")
    for panel in chart.panels:
        assert panel.title in text
        assert panel.axis in text
        for one in panel.series:
            assert one.name in text
            assert all(word in text for word in one.texts)
    assert all(name in text for name in (chart.title, *chart.groups, *chart.notes))
    assert text.count('id="axes_') == len(chart.panels)
    assert ("lower bound" in text) == (chart.panels[0].bound is not None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "chart",
    [
        grouped(),
        compared(),
        compared(longest=10**14),
        comparison_bars("c", [Compared(f"n{i}", "fattree", i, 2**i) for i in range(14)], 1),
        comparison_bars("c", [Compared("n", "bcube", 7 * 10**17, 2**60)], 6 * 10**17),
    ],
)
def test_no_text_lies_on_another_or_is_cut_off(chart: BarChart) -> None:
    figure = drawn(chart)
    found = texts_in(figure)
    assert len(found) > 8
    for (one, a), (other, b) in combinations(found, 2):
        overlap = min(a[2], b[2]) - max(a[0], b[0]) > 1 and min(a[3], b[3]) - max(a[1], b[1]) > 1
        assert not overlap, (one, other)
    for text, (x0, y0, x1, y1) in found:
        assert min(x0, y0) > -1, text
        assert x1 < figure.bbox.width + 1, text
        assert y1 < figure.bbox.height + 1, text


@pytest.mark.parametrize("chart", [grouped(), compared()])
def test_bars_are_as_long_as_their_values_and_apart(chart: BarChart) -> None:
    for axes, panel in zip(drawn(chart).axes, chart.panels, strict=True):
        bars = [bar.get_bbox() for bar in axes.patches]
        lengths = sorted(bar.x1 if chart.horizontal else bar.y1 for bar in bars)
        assert lengths == sorted(min(value, panel.longest) for value in panel.values)
        sides = sorted((bar.y0, bar.y1) if chart.horizontal else (bar.x0, bar.x1) for bar in bars)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(sides))


def test_names_are_no_formulas_and_no_control_characters(tmp_path: Path) -> None:
    series = (BarSeries("$\\frac{$", (1.0,), ("$x$",), 0),)
    for horizontal in (True, False):
        panel = BarPanel("$p_{$", "u", series, bound=0.5, bound_text="b\x00")
        chart = BarChart("$t$", ("a\x00" * 40,), (panel,), horizontal=horizontal)
        assert "\x00" not in text_bars(chart)
        assert "$x$" in saved(chart, tmp_path)


@pytest.mark.slow
def test_every_format_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("p.png", "p.pdf"):  # the others here are SVG
        save_bars(grouped(), tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
