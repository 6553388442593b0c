"""Pictures of synchronisations: maps of who is asked, and a bar a method."""

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from planner.families.bigdl import Exchange, pulls_at_once
from planner.model.errors import InvalidInputError
from planner.solving.views import MAX_CELLS, HotSpots
from planner.view import DRAWINGS, Chart
from planner.view.panels import above_bound
from tests.draw.reading import Picture

TIMES = (("rotated", 100), ("reduce", 1000), ("same_order", 150))


def spots(nodes: int = 6, **change: Any) -> HotSpots:
    size = min(nodes, MAX_CELLS)
    maps = (
        ("as planned", pulls_at_once(Exchange(9999, nodes, "rotated"), size, size)),
        ("one order for all", pulls_at_once(Exchange(9999, nodes, "same"), size, size)),
    )
    return replace(HotSpots(nodes, "rotated", TIMES, maps), **change)


def chart(bound: int | None = 100, nodes: int = 6, **change: Any) -> Chart[HotSpots]:
    return Chart("bigdl · rotated", spots(nodes, **change), bound)


def text_hot_spots(drawn: Chart[HotSpots], width: int) -> str:
    return DRAWINGS["bigdl"].text(drawn, width)


def written(drawn: Chart[HotSpots], folder: Path, name: str = "p.svg") -> Picture:
    DRAWINGS["bigdl"].save(drawn, folder / name)
    return Picture(folder / name)


def test_text_counts_the_pulls_of_each_turn() -> None:
    title, planned, same, _ = text_hot_spots(chart(), 70).split("\n\n")
    assert title == "bigdl · rotated"
    assert planned.startswith("pulls of gradients at once, as planned")
    turns = [f"   {turn}  1 1 1 1 1 1" for turn in range(1, 6)]
    assert planned.splitlines()[2:] == ["   0  · · · · · ·", *turns]
    assert [line.split()[1:].index("5") for line in same.splitlines()[2:]] == list(range(6))


def test_text_has_a_bar_a_method_in_proportion() -> None:
    lines = text_hot_spots(chart(), 90).split("\n\n")[-1].splitlines()[1:]
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


def test_text_of_many_nodes_says_what_is_left_out() -> None:
    text = text_hot_spots(chart(nodes=200), 100)
    assert "(the first 16 of 200)" in text
    assert "199" in text
    assert len(text.splitlines()) < 60


def test_without_maps_there_are_only_bars() -> None:
    text = text_hot_spots(chart(maps=()), 80)
    assert "turns" not in text
    assert len(text.split("\n\n")) == 2


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
    text = text_hot_spots(chart(0, times_ns=(("rotated", 0),)), 80)
    assert not re.search("[█▒]", text)


@pytest.mark.parametrize("nodes", [2, 17, 200])
def test_pictures_of_any_size_come_out_the_same_again(nodes: int, tmp_path: Path) -> None:
    picture = written(chart(nodes=nodes), tmp_path)
    assert written(chart(nodes=nodes), tmp_path, "again.svg").source == picture.source
    for one, other in combinations(picture.texts, 2):
        assert not one.covers(other), (one, other)


@pytest.mark.parametrize(
    ("bound", "change"),
    [
        (None, {"maps": ()}),
        (0, {"maps": ()}),
        (None, {"times_ns": (("rotated", 0),)}),
        (0, {"times_ns": (("rotated", 0),)}),
    ],
)
def test_pictures_with_little_to_show(
    bound: int | None, change: dict[str, Any], tmp_path: Path
) -> None:
    assert "every way to synchronise" in written(chart(bound, **change), tmp_path).words


def test_pictures_hold_one_cell_a_turn_and_node(tmp_path: Path) -> None:
    """Two maps of the same shape, and a bar a method."""
    picture = written(chart(nodes=40), tmp_path)
    cells = [rect for rect in picture.rects if rect.width == rect.height]
    assert len(cells) == 2 * 32 * 32
    empty = [cell for cell in cells if cell.look == "#f2f2f2"]
    assert len(empty) == 32 + 31 * 32  # the first turn, and all but one node of each turn
    assert len([rect for rect in picture.rects if rect.look == "apart"]) == len(TIMES)
    assert [text for text in picture.words if text in dict(TIMES)] == [
        "rotated",
        "same_order",
        "reduce",
    ]


def test_traces_are_refused_with_a_reason() -> None:
    with pytest.raises(InvalidInputError, match="a trace shows when things happen"):
        DRAWINGS["bigdl"].writer(Path("plan.json.gz"))
    assert DRAWINGS["bigdl"].writer(Path("plan.svg")) == DRAWINGS["bigdl"].save
