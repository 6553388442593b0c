"""Pictures of group sizes: rows, limits, the chosen size."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.solving.views import GroupPoint, Groups, share_text
from planner.view.chart import Chart
from planner.view.drawing import DRAWINGS
from planner.view.panels import groups as panels_of
from tests.draw.reading import saved


def groups(most: int = 64, chosen: int = 8, **change: Any) -> Groups:
    sizes = [2**power for power in range(most.bit_length())]
    points = tuple(GroupPoint(g, 0.1 / (g + 0.1), 10**9 * g + 10**8) for g in sizes)
    (plan,) = (point for point in points if point.group_size == chosen)
    return replace(Groups(points, plan, 0.02, 20 * 10**9), **change)


def chart(title: str = "drizzle · exact", **change: Any) -> Chart[Groups]:
    return Chart(title, groups(**change), 7)


def text_groups(drawn: Chart[Groups], width: int = 80) -> str:
    return DRAWINGS["drizzle"].text(drawn, width)


def test_text_has_a_bar_a_size_and_says_what_each_breaks() -> None:
    title, shares, times = text_groups(chart(), 100).split("\n\n")
    assert title == "drizzle · exact"
    rows = {line.split()[0]: line for line in shares.splitlines()[1:8]}
    assert list(rows) == ["1", "2", "4", "8", "16", "32", "64"]
    assert rows["4"].endswith("2.44%, too much overhead")
    assert rows["32"].endswith("0.31%, too long a group")
    assert [size for size, line in rows.items() if "█" in line] == ["8"]
    assert rows["16"].endswith(" 0.62%")
    assert shares.splitlines()[8].startswith("limit 2.00%  ░")
    assert shares.endswith("█ chosen")
    assert times.splitlines()[5].endswith("16.1 s")
    assert times.splitlines()[8].startswith("limit 20 s")
    assert max(map(len, (shares + times).splitlines())) <= 100


def test_bars_are_in_proportion() -> None:
    ((shares, times),) = panels_of(chart())
    assert list(shares.values) == sorted(shares.values, reverse=True)
    assert shares.values[3] == pytest.approx(100 * 0.1 / 8.1)
    assert (shares.bound, shares.longest) == (2, shares.values[0])
    assert times.values[3] == pytest.approx(8.1)
    assert times.bound == 20


def test_many_sizes_are_those_around_the_chosen_one() -> None:
    for chosen in (1, 2**20, 2**40):
        ((shares, times),) = panels_of(chart(most=2**40, chosen=chosen))
        sizes = [row.name for row in shares.rows]
        assert sizes == [row.name for row in times.rows]
        assert len(sizes) == 24
        assert f"{chosen:,}" in sizes


def test_what_is_just_within_the_limits_breaks_none() -> None:
    plan = groups().chosen
    drawn = groups(max_overhead=plan.overhead, max_group_ns=plan.group_time_ns)
    assert not drawn.breaks(plan)


def test_no_limit_on_the_time_of_a_group() -> None:
    assert "time of a group 20 s" not in text_groups(chart(max_group_ns=None), 100)
    assert "too long" not in text_groups(chart(max_group_ns=None), 100)


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
    drawn = chart(title="a <title> 名", **change)
    picture = saved("drizzle", drawn, tmp_path)
    assert "a <title> 名" in picture.words
    assert f"limit {share_text(drawn.view.max_overhead)}" in picture.words
    limits = [text for text in picture.words if text.startswith("limit ")]
    assert len(limits) == (1 if drawn.view.max_group_ns is None else 2)


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0.00%"), (0.5, "50.00%"), (0.001, "0.10%"), (0.00012, "0.012%")]
)
def test_shares_never_look_like_nothing(share: float, text: str) -> None:
    assert share_text(share) == text
