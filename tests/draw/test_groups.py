"""Pictures of group sizes: rows, limits, the chosen size."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from planner.model.errors import InvalidInputError
from planner.solving.views import GroupPoint, Groups, share_text
from planner.view import DRAWINGS, Chart
from planner.view.groups import save_groups, text_groups


def groups(most: int = 64, chosen: int = 8, **change: Any) -> Groups:
    sizes = [2**power for power in range(most.bit_length())]
    points = tuple(GroupPoint(g, 0.1 / (g + 0.1), 10**9 * g + 10**8) for g in sizes)
    (plan,) = (point for point in points if point.group_size == chosen)
    return replace(Groups(points, plan, 0.02, 20 * 10**9), **change)


def chart(title: str = "drizzle · exact", **change: Any) -> Chart[Groups]:
    return Chart(title, groups(**change), 7)


def saved(drawn: Chart[Groups], folder: Path, name: str = "p.svg") -> str:
    pytest.importorskip("matplotlib")
    save_groups(drawn, folder / name)
    return (folder / name).read_text() if name.endswith("svg") else ""


def test_text_has_a_row_a_size_and_says_what_each_breaks() -> None:
    text = text_groups(chart(), 100)
    lines = text.splitlines()
    assert lines[0] == "drizzle · exact"
    notes = {int(line[40:].split()[0]): line for line in lines[4:11]}
    for size, note in (
        (4, "too much overhead"),
        (8, "<- chosen"),
        (32, "too long a group"),
    ):
        assert notes[size].endswith(note)
    assert notes[16].endswith(" s")
    assert lines[-1] == "limits: overhead 2.00%, time of a group 20 s"
    assert max(map(len, lines)) <= 100


def test_bars_are_in_proportion() -> None:
    lines = text_groups(chart(), 126).splitlines()[4:11]
    filled = [line.count("█") + line.startswith("█") for line in lines]
    assert filled == sorted(filled, reverse=True)
    assert filled[1] == pytest.approx(filled[0] * (0.1 / 2.1) / (0.1 / 1.1), abs=2)
    assert {line.index("|") for line in lines} == {int(0.02 / (0.1 / 1.1) * 60)}


def test_long_tables_are_cut_around_the_chosen_size() -> None:
    for chosen in (1, 2**20, 2**40):
        text = text_groups(chart(most=2**40, chosen=chosen), 100)
        assert "<- chosen" in text
        assert text.count(" more …") == (2 if chosen == 2**20 else 1)
        assert len(text.splitlines()) <= 32


def test_what_is_just_within_the_limits_breaks_none() -> None:
    plan = groups().chosen
    drawn = groups(max_overhead=plan.overhead, max_group_ns=plan.group_time_ns)
    assert not drawn.breaks(plan)


def test_no_limit_on_the_time_of_a_group() -> None:
    assert "time of a group 20 s" not in text_groups(chart(max_group_ns=None), 100)
    assert "too long" not in text_groups(chart(max_group_ns=None), 100)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"max_group_ns": None},
        {"most": 4, "chosen": 1, "max_overhead": 0.5},
        {"most": 2**30, "chosen": 2**20, "max_overhead": 1e-7},
        {"max_group_ns": 2**62},
    ],
)
def test_a_picture_shows_the_plan_and_the_limits(change: dict[str, Any], tmp_path: Path) -> None:
    drawn = chart(title="a $title$ 名", **change)
    svg = saved(drawn, tmp_path)
    assert "a $title$" in svg
    assert f"limit {share_text(drawn.view.max_overhead)}" in svg
    size = drawn.view.chosen.group_size
    assert f"{size}: " in svg or "1.049e+06: " in svg
    assert svg.count("limit ") >= (2 if drawn.view.max_group_ns is None else 4) // 2
    if not change:
        assert svg == saved(drawn, tmp_path, "q.svg")


def test_nothing_takes_time(tmp_path: Path) -> None:
    points = tuple(GroupPoint(size, 0.0, 0) for size in (1, 2, 4))
    drawn = Chart("nothing", Groups(points, points[0], 0.1))
    assert "1: 0.00%" in saved(drawn, tmp_path)
    assert "0 ns" in text_groups(drawn)
    unlimited = replace(drawn, view=replace(drawn.view, max_overhead=0.0))
    assert "█" not in text_groups(unlimited)
    saved(unlimited, tmp_path)


def figure_of(drawn: Chart[Groups]) -> Any:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from planner.view.groups import _SIZE_INCHES, _fill

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    _fill(figure, drawn)
    figure.draw_without_rendering()
    return figure


def test_a_group_of_no_time_is_drawn_at_nothing() -> None:
    points = tuple(GroupPoint(size, 0.0, 0) for size in (1, 2, 4))
    _, times = figure_of(Chart("nothing", Groups(points, points[0], 0.1))).axes
    assert all(not any(line.get_ydata()) for line in times.lines)
    assert times.get_ylim()[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [1, 2**10, 2**33, 2**45])
@pytest.mark.parametrize("limit", [0.02, 1e-16])
def test_words_stay_in_their_axes_and_off_each_other(chosen: int, limit: float) -> None:
    figure = figure_of(chart(most=2**46, chosen=chosen, max_overhead=limit))
    for axes in figure.axes:
        frame = axes.get_window_extent()
        for text in axes.texts:
            box = text.get_window_extent()
            assert frame.x0 <= box.x0
            assert box.x1 <= frame.x1
        ticks = axes.get_xticklabels()
        boxes = [tick.get_window_extent() for tick in ticks if tick.get_text()]
        assert len(boxes) > 2
        assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
        tall = [label.get_window_extent() for label in axes.get_yticklabels() if label.get_text()]
        assert all(one.y1 < other.y0 for one, other in pairwise(tall))


def test_formats(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("p.png", "p.pdf"):
        DRAWINGS["drizzle"].writer(Path(name))(chart(), tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(InvalidInputError, match="says only how often"):
        DRAWINGS["drizzle"].writer(Path("p.json"))
    with pytest.raises(InvalidInputError, match="expected a name ending in"):
        DRAWINGS["drizzle"].writer(Path("p.txt"))


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0.00%"), (0.5, "50.00%"), (0.001, "0.10%"), (0.00012, "0.012%")]
)
def test_shares_never_look_like_nothing(share: float, text: str) -> None:
    assert share_text(share) == text
