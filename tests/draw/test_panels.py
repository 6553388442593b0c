"""Plans that are no timelines: what their panels hold, and that texts and pictures show all of it.

Numbers and names as they are written: `tests/test_units.py`.
"""

from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.solving.views import Compared, GroupPoint, Groups, LayerTime, Point, Ranking, Scaling
from planner.view.bars import Bars
from planner.view.chart import Chart
from planner.view.drawing import DRAWINGS
from planner.view.panels import grouped
from tests.draw.reading import saved
from tests.thorough import THOROUGH

TIMES = (("rotated", 100), ("reduce", 1000), ("same_order", 150))


def compared(bound: int | None = 95_000_000, longest: int = 2 * 10**9) -> Chart[Any]:
    rows = (
        Compared("ring_fattree", "fattree", longest, 15),
        Compared("bml_bcube", "bcube", 98_000_000, 6),
        Compared("halving_doubling_fattree", "fattree", 411_000_000, 15),
        Compared("ps_bcube", "bcube", 146_000_000, 6),
        Compared("ps_fattree", "fattree", 195_000_000, 15),
    )
    return Chart("548 MB on 9 servers", rows, bound)


def ranked(bound: int | None = 100, times: tuple[tuple[str, int], ...] = TIMES) -> Chart[Ranking]:
    return Chart("bigdl · rotated", Ranking("rotated", times), bound)


def groups(
    most: int = 64, chosen: int = 8, title: str = "drizzle · exact", **change: Any
) -> Chart[Groups]:
    sizes = [2**power for power in range(most.bit_length())]
    points = tuple(GroupPoint(g, 0.1 / (g + 0.1), 10**9 * g + 10**8) for g in sizes)
    (plan,) = (point for point in points if point.group_size == chosen)
    return Chart(title, replace(Groups(points, plan, 0.02, 20 * 10**9), **change), 7)


def scaling(machines: int = 20, *, front: bool = False, **change: Any) -> Chart[Scaling]:
    points = tuple(Point(workers, 1, 1, 10**12 // workers) for workers in range(1, machines))
    view = Scaling(layers(4), points[-1], points[:-9:-1], points if front else ())
    return Chart("yan · exact", replace(view, **change), 7)


def layers(count: int) -> tuple[LayerTime, ...]:
    phases = (tuple(10**9 * (place + phase) for phase in range(5)) for place in range(count))
    return tuple(LayerTime(f"layer{place}", times) for place, times in enumerate(phases))


FREE = Point(1, 1, 1, 0)
STILL = tuple(GroupPoint(size, 0.0, 0) for size in (1, 2, 4))
ZERO = scaling(layers=(LayerTime("x", (0,) * 5),), best=FREE, ranking=(FREE,))

CHARTS: list[tuple[str, Chart[Any]]] = [
    *(("bml", compared(bound)) for bound in (95_000_000, None)),
    ("bml", compared(longest=10**14)),
    ("bml", Chart("c", tuple(Compared(f"n{i}", "fattree", i, 2**i) for i in range(14)), 1)),
    ("bml", Chart("c", (Compared("n", "bcube", 7 * 10**17, 2**60),), 6 * 10**17)),
    ("bml", Chart("a bound above all bars", (Compared("g", "bcube", 10**6, 1),), 4 * 10**6)),
    ("bml", Chart("nothing takes time", (Compared("a", "bcube", 0, 1),), 0)),
    *(
        ("bigdl", ranked(bound, times))
        for bound in (None, 0, 100)
        for times in (TIMES, (("rotated", 0),))
    ),
    *(
        ("drizzle", groups(most=2**46, chosen=chosen, max_overhead=limit))
        for chosen in (1, 2**10, 2**33, 2**45)
        for limit in (0.02, 1e-16)
    ),
    ("drizzle", groups(title="a <title> 名")),
    *(("drizzle", groups(max_group_ns=most)) for most in (None, 2**62)),
    ("drizzle", groups(most=4, chosen=1, max_overhead=0.5)),
    ("drizzle", groups(most=2**30, chosen=2**20, max_overhead=1e-7)),
    *(("drizzle", Chart("nothing", Groups(STILL, STILL[0], limit))) for limit in (0.0, 0.1)),
    *(("yan", scaling(machines, front=True)) for machines in (2, 20, 250)),
    *(("yan", scaling(machines)) for machines in (2, 100 if THOROUGH else 20)),
    *(("yan", replace(ZERO, view=replace(ZERO.view, front=front))) for front in ((), (FREE,))),
]


def panels_of(problem: str, chart: Chart[Any]) -> list[Bars]:
    panels = DRAWINGS[problem].panels
    assert panels is not None
    return [panel for row in panels(chart) for panel in row]


def rows_of(panel: Bars) -> list[tuple[str, str]]:
    return [(row.name, row.text) for row in panel.rows]


def standing_out(panel: Bars) -> list[str]:
    """Return the rows that are of the first part."""
    return [row.name for row in panel.rows if row.lengths[0]]


@pytest.mark.parametrize(("problem", "chart"), CHARTS)
def test_a_text_has_every_row_and_its_bar_in_proportion(problem: str, chart: Chart[Any]) -> None:
    title, *blocks = DRAWINGS[problem].text(chart, 100).split("\n\n")
    assert title == chart.title
    for panel, block in zip(panels_of(problem, chart), blocks, strict=True):
        head, *lines = block.splitlines()
        assert head == f"{panel.title}: {panel.unit}"
        assert max(map(len, lines)) <= 100
        bars = [
            line.removeprefix(name).removesuffix(text).strip()
            for line, (name, text) in zip(lines, rows_of(panel), strict=False)
        ]
        whole = max(map(len, bars))
        if panel.bound is not None:
            bound = lines[len(bars)].removeprefix(panel.bound_text).strip()
            assert set(bound) <= {"░"}
            whole = max(whole, len(bound))
            assert len(bound) == pytest.approx(panel.bound / panel.longest * whole, abs=0.51)
        for bar, row in zip(bars, panel.rows, strict=True):
            characters = {part.character: 0.0 for part in panel.parts}
            for part, length in zip(panel.parts, row.lengths, strict=True):
                characters[part.character] += length / panel.longest * whole
            assert set(bar) <= {*characters}
            for one, length in characters.items():
                assert bar.count(one) == pytest.approx(length, abs=1)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=9).filter(any), st.integers(60, 150))
def test_bars_of_texts_are_rounded_to_half_a_character(counts: list[int], width: int) -> None:
    rows = tuple(Compared(f"g{place}", "bcube", place, one) for place, one in enumerate(counts))
    text = DRAWINGS["bml"].text(Chart("c", rows), width)
    lines = text.split("\n\n")[2].splitlines()[1:]
    lengths = [line.count("█") for line in lines]
    assert all(len(line) == width for line in lines)
    for length, count in zip(lengths, counts, strict=True):
        assert abs(length - count / max(counts) * max(lengths)) <= 0.5 + 1e-9


@pytest.mark.parametrize(("problem", "chart"), CHARTS)
def test_a_picture_has_all_words_and_bars_in_proportion_and_apart(
    problem: str, chart: Chart[Any], tmp_path: Path
) -> None:
    picture, panels = saved(problem, chart, tmp_path), panels_of(problem, chart)
    bars = iter([rect for rect in picture.rects if rect.look == "apart"])
    words = {chart.title}
    for panel in panels:
        words |= {panel.title, panel.unit, *(text for row in rows_of(panel) for text in row)}
        words |= {panel.bound_text} if panel.bound is not None else set()
        rows = []
        for row in panel.rows:
            both = zip(panel.parts, row.lengths, strict=True)
            parts = [(part, length) for part, length in both if length]
            assert all(part.colour in picture.source for part, _ in parts)
            words |= {part.name for part, _ in parts if part.name}
            rows.append([(length, next(bars)) for _, length in parts])
        drawn = [one for row in rows for one in row]
        most = max((length for length, _ in drawn), default=1)
        widest = max((bar.width for _, bar in drawn), default=0)
        for length, bar in drawn:
            assert bar.width == pytest.approx(length / most * widest, abs=0.02)
        for stretches in rows:
            for (_, left), (_, right) in pairwise(stretches):
                assert right.x == pytest.approx(left.x + left.width, abs=0.02)
        for above, below in pairwise(stretches[0][1] for stretches in rows if stretches):
            assert above.y + above.height <= below.y
    assert next(bars, None) is None
    assert words <= {*picture.words}
    assert len(picture.texts) > 5
    for one, other in combinations(picture.texts, 2):
        assert not one.covers(other), (one, other)
    for one in picture.texts:
        assert one.left >= 0, one
        assert one.right <= picture.width, one
        assert 0 < one.y < picture.height, one


def test_algorithms_are_sorted_by_time_then_by_switches_and_by_name() -> None:
    times, switches = panels_of("bml", compared())
    assert rows_of(times) == [
        ("bml_bcube", "98 ms"),
        ("ps_bcube", "146 ms"),
        ("ps_fattree", "195 ms"),
        ("halving_doubling_fattree", "411 ms"),
        ("ring_fattree", "2 s"),
    ]
    assert [text for _, text in rows_of(switches)] == ["6", "6", "15", "15", "15"]
    assert standing_out(times) == ["bml_bcube", "ps_bcube"]
    assert times.bound_text == "lower bound on BCube 95 ms"
    assert panels_of("bml", compared(bound=None))[0].bound is None
    rows = [Compared("b", "fattree", 5, 5 * 2**60), Compared("a", "fattree", 5, 5 * 2**60)]
    rows.append(Compared("c", "bcube", 5, 10**9 - 1))
    for order in (rows, rows[::-1]):
        _, counts = panels_of("bml", Chart("t", tuple(order)))
        assert rows_of(counts) == [("c", "999,999,999"), ("a", "5.76e+18"), ("b", "5.76e+18")]


def test_methods_are_ranked_by_time() -> None:
    (panel,) = panels_of("bigdl", ranked())
    assert rows_of(panel) == [
        ("rotated", "100 ns  the lower bound"),
        ("same_order", "150 ns  50.00% above the bound"),
        ("reduce", "1 µs  10× the bound"),
    ]
    assert standing_out(panel) == ["rotated"]
    assert panel.values == pytest.approx((0.1, 0.15, 1))


def test_group_sizes_say_what_each_breaks() -> None:
    shares, times = panels_of("drizzle", groups())
    sizes = [2**power for power in range(7)]
    assert rows_of(shares) == [
        ("1", "9.09%, too much overhead"),
        ("2", "4.76%, too much overhead"),
        ("4", "2.44%, too much overhead"),
        ("8", "1.23%"),
        ("16", "0.62%"),
        ("32", "0.31%, too long a group"),
        ("64", "0.16%, too long a group"),
    ]
    assert rows_of(times)[4] == ("16", "16.1 s")
    assert standing_out(shares) == standing_out(times) == ["8"]
    assert shares.values == pytest.approx([10 / (size + 0.1) for size in sizes])
    assert times.values == pytest.approx([size + 0.1 for size in sizes])
    assert (shares.bound, shares.bound_text) == (2, "limit 2.00%")
    assert (times.bound, times.bound_text) == (20, "limit 20 s")
    assert "█ chosen" in DRAWINGS["drizzle"].text(groups(), 80)
    shares, times = panels_of("drizzle", groups(max_group_ns=None))
    assert times.bound is None
    assert rows_of(shares)[-1] == ("64", "0.16%")
    plan = groups().view.chosen
    just = groups(max_overhead=plan.overhead, max_group_ns=plan.group_time_ns)
    assert not just.view.breaks(plan)


def test_many_sizes_are_those_around_the_chosen_one() -> None:
    for chosen in (1, 2**20, 2**40):
        shares, times = panels_of("drizzle", groups(most=2**40, chosen=chosen))
        sizes = [row.name for row in shares.rows]
        assert sizes == [row.name for row in times.rows]
        assert len(sizes) == 24
        assert f"{chosen:,}" in sizes


def test_layers_are_stacked_phase_by_phase() -> None:
    rows = (
        LayerTime("conv", (10 * 10**9, 20 * 10**9, 5 * 10**9, 5 * 10**9, 0)),
        LayerTime("fc", (0, 0, 0, 10 * 10**9, 10 * 10**9)),
    )
    panel, _ = panels_of("yan", scaling(layers=rows))
    assert rows_of(panel) == [("conv", "40 s  66.7%"), ("fc", "20 s  33.3%")]
    assert [row.lengths for row in panel.rows] == [(10, 20, 5, 5, 0), (0, 0, 0, 10, 10)]
    legend = "f forward · b backward · u update · c communication · w weight reading"
    assert legend in DRAWINGS["yan"].text(scaling(), 80).splitlines()


def test_the_ranking_says_the_slowdown() -> None:
    points = (Point(4, 4, 4, 10**10), Point(2, 8, 4, 15 * 10**9), Point(1, 8, 4, 25 * 10**9))
    _, ranking = panels_of("yan", scaling(ranking=points, best=points[0]))
    assert rows_of(ranking) == [
        ("4×4+4", "10 s"),
        ("2×8+4", "15 s (+50.00%)"),
        ("1×8+4", "25 s (2.5×)"),
    ]
    assert standing_out(ranking) == ["4×4+4"]
    titles = [panel.title for panel in panels_of("yan", scaling(front=True))]
    assert titles[0] == "where the time of an epoch goes, by layer"
    assert titles[1].endswith("the best of each")
    assert titles[2].startswith("the best for each number of machines")


def test_many_layers_share_rows_and_nothing_is_lost() -> None:
    times = layers(100)
    for most in (1, 7, 48, 100):
        rows = grouped(times, most)
        assert len(rows) <= most
        assert sum(row.total_ns for row in rows) == sum(time.total_ns for time in times)
    names = [row.name for row in grouped(times, 48)]
    assert (names[0], names[-1]) == ("layers 0 … 2", "layers 99 … 99")
    assert panels_of("yan", scaling(layers=times))[0].rows[0].name == "layers 0 … 4"


def test_long_fronts_and_rankings_are_thinned_out() -> None:
    points = tuple(Point(1, replicas, 1, 10**15 // replicas) for replicas in range(1, 1001))
    drawn = scaling(ranking=points[::-1], best=points[-1])
    thinned = replace(drawn, view=replace(drawn.view, front=points))
    _, ranking, front = panels_of("yan", thinned)
    assert ranking.title.endswith("the first 24 of 1000")
    assert len(ranking.rows) == len(front.rows) == 24
    assert front.rows[-1].name == "1,001: 1×1000+1"
    assert standing_out(front) == ["1,001: 1×1000+1"]
