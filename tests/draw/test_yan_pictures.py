"""Pictures of configurations: where the time goes, the ranking, the map and the staircase."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.solving.views import (
    LayerTime,
    Point,
    Scaling,
    epoch_text,
)
from planner.view.chart import Chart
from planner.view.drawing import DRAWINGS
from planner.view.panels import grouped, slowdown_text
from planner.view.panels import scaling as panels_of
from tests.draw.reading import saved
from tests.thorough import THOROUGH


def point(workers: int, replicas: int, servers: int = 1) -> Point:
    """Price a configuration: faster with every machine, but worse the less square it is."""
    epoch = 10**12 // (workers * replicas) + 10**9 * (workers - replicas) ** 2 + 10**9 // servers
    return Point(workers, replicas, servers, epoch)


def scaling(machines: int = 20, layers: int = 4, *, front: bool = True) -> Scaling:
    pairs = [
        point(workers, replicas, machines - workers * replicas)
        for workers in range(1, machines)
        for replicas in range(1, (machines - 1) // workers + 1)
    ]
    ranking = sorted(pairs, key=lambda pair: pair.epoch_ns)
    found: list[Point] = []
    for one in sorted(
        (point(pair.workers, pair.replicas) for pair in pairs),
        key=lambda one: (one.machines, one.epoch_ns),
    ):
        if not found or (one.epoch_ns < found[-1].epoch_ns and one.machines > found[-1].machines):
            found.append(one)
    times = tuple(
        LayerTime(f"layer{place}", tuple(10**9 * (place + phase) for phase in range(5)))
        for place in range(layers)
    )
    return Scaling(
        times,
        ranking[0],
        tuple(ranking[:8]),
        tuple(found) if front else (),
    )


def chart(**change: Any) -> Chart[Scaling]:
    return Chart("yan · exact", replace(scaling(front=False), **change), 7)


def text_scaling(drawn: Chart[Scaling], width: int = 80) -> str:
    return DRAWINGS["yan"].text(drawn, width)


def test_text_has_a_bar_a_layer_in_proportion() -> None:
    layers = (
        LayerTime("conv", (10 * 10**9, 20 * 10**9, 5 * 10**9, 5 * 10**9, 0)),
        LayerTime("fc", (0, 0, 0, 10 * 10**9, 10 * 10**9)),
    )
    lines = text_scaling(chart(layers=layers), 70).splitlines()
    assert lines[0] == "yan · exact"
    conv, full = lines[3:5]
    bar = conv.split()[1]
    assert set(bar) == set("fbuc")
    assert bar.count("b") == pytest.approx(2 * bar.count("f"), abs=1)
    assert len(bar) == pytest.approx(2 * len(full.split()[1]), abs=1)
    assert conv.split()[2:] == ["40", "s", "66.7%"]
    assert full.split()[2:] == ["20", "s", "33.3%"]
    assert all(len(line) == 70 for line in (conv, full))
    assert lines[5] == "f forward · b backward · u update · c communication · w weight reading"


def test_text_has_the_ranking_with_the_slowdown() -> None:
    points = (Point(4, 4, 4, 10**10), Point(2, 8, 4, 15 * 10**9), Point(1, 8, 4, 25 * 10**9))
    rows = text_scaling(chart(ranking=points, best=points[0])).split("\n\n")[2].splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["4×4+4", "2×8+4", "1×8+4"]
    assert ["█" in row for row in rows] == [True, False, False]
    ends = ("10 s", "15 s (+50.00%)", "25 s (2.5×)")
    assert all(row.endswith(end) for row, end in zip(rows, ends, strict=True))


def test_text_shows_the_other_parts_only_if_there_are_any() -> None:
    bare = text_scaling(chart())
    assert "the best with so many" not in bare
    text = text_scaling(chart(front=scaling().front))
    assert "the best with so many machines" in text


def test_many_layers_share_rows_and_nothing_is_lost() -> None:
    times = scaling(layers=100).layers
    for most in (1, 7, 48, 100):
        rows = grouped(times, most)
        assert len(rows) <= most
        assert sum(row.total_ns for row in rows) == sum(time.total_ns for time in times)
    assert grouped(times, 48)[0].name == "layers 0 … 2"
    assert grouped(times, 48)[-1].name == "layers 99 … 99"
    assert "layers 0 … 4" in text_scaling(chart(layers=times))


@pytest.mark.parametrize("front", [False, True])
@pytest.mark.parametrize("machines", [2, 100 if THOROUGH else 20])
def test_panels_are_those_there_is_something_for(
    machines: int, front: bool, tmp_path: Path
) -> None:
    drawn = Chart("yan", scaling(machines, front=front))
    picture = saved("yan", drawn, tmp_path)
    assert "where the time of an epoch goes, by layer" in picture.words
    assert any("the best of each" in text or "the first" in text for text in picture.words)
    assert any("the best with so many" in text for text in picture.words) == front


def test_long_fronts_and_rankings_are_thinned_out() -> None:
    points = tuple(Point(1, replicas, 1, 10**15 // replicas) for replicas in range(1, 1001))
    found = panels_of(chart(ranking=points[::-1], best=points[-1], front=points))
    ranking, front = found[1]
    assert ranking.title.endswith("the first 24 of 1000")
    assert len(ranking.rows) == len(front.rows) == 24
    assert front.rows[-1].name == "1,001: 1×1000+1"
    assert front.rows[-1].lengths[0]  # the best stands out


def test_long_epochs_are_seconds_in_full() -> None:
    assert epoch_text(1_500_000_000) == "1.5 s"
    assert epoch_text(20_050 * 10**9) == "5.569 h"
    assert epoch_text(129_600 * 10**9) == "36 h"
    assert epoch_text(265_277 * 10**9) == "3.07 days"
    assert epoch_text(10**6 * 86_400 * 10**9) == "1,000,000 days"


def test_near_ties_are_told_from_ties() -> None:
    found = [slowdown_text(time, 10**6) for time in (10**6, 10**6 + 1, 1_012_300, 35 * 10**6)]
    assert found == ["0%", "<0.01%", "1.23%", "35×"]
    assert slowdown_text(5, 0) == "0%"
