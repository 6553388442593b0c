"""Pictures of synchronisations: a bar a method."""

import re
from pathlib import Path

import pytest

from planner.solving.views import Ranking
from planner.view.chart import Chart
from planner.view.drawing import DRAWINGS
from planner.view.panels import above_bound
from tests.draw.reading import saved

TIMES = (("rotated", 100), ("reduce", 1000), ("same_order", 150))


def chart(bound: int | None = 100, times: tuple[tuple[str, int], ...] = TIMES) -> Chart[Ranking]:
    return Chart("bigdl · rotated", Ranking("rotated", times), bound)


def text_of(drawn: Chart[Ranking], width: int) -> str:
    return DRAWINGS["bigdl"].text(drawn, width)


def test_text_has_a_bar_a_method_in_proportion() -> None:
    lines = text_of(chart(), 90).split("\n\n")[-1].splitlines()[1:]
    names = ["rotated", "same_order", "reduce", "lower"]
    assert [line.split()[0] for line in lines] == names
    lengths = [len(re.findall("[█▒]", line)) for line in lines]
    assert lengths[2] == pytest.approx(10 * lengths[0], abs=5)
    assert lengths[1] == pytest.approx(1.5 * lengths[0], abs=1)
    assert ["█" in line for line in lines] == [True, False, False, False]
    assert lines[0].endswith("100 ns  the lower bound")
    assert lines[1].endswith("150 ns  50.00% above the bound")
    assert lines[2].endswith("1 µs  10× the bound")
    assert max(map(len, lines)) <= 90


@pytest.mark.parametrize(
    ("bound", "time", "words"),
    [
        (None, 5, ""),
        (0, 5, ""),
        (0, 0, "the lower bound"),
        (10**6, 10**6 + 1, "<0.01% above the bound"),
        (100, 199, "99.00% above the bound"),
        (100, 200, "2× the bound"),
    ],
)
def test_distances_to_the_bound(bound: int | None, time: int, words: str) -> None:
    assert above_bound(time, bound) == words


def test_nothing_to_send_takes_no_bar() -> None:
    text = text_of(chart(0, (("rotated", 0),)), 80)
    assert not re.search("[█▒]", text)


@pytest.mark.parametrize("bound", [None, 0, 100])
@pytest.mark.parametrize("times", [TIMES, (("rotated", 0),)])
def test_pictures_have_a_bar_a_method(
    bound: int | None, times: tuple[tuple[str, int], ...], tmp_path: Path
) -> None:
    picture = saved("bigdl", chart(bound, times), tmp_path)
    assert "every way to synchronise" in picture.words
    names = [name for name in ("rotated", "same_order", "reduce") if name in dict(times)]
    assert [text for text in picture.words if text in dict(times)] == names
    bars = [rect for rect in picture.rects if rect.look == "apart"]
    assert len(bars) == sum(time > 0 for _, time in times)
