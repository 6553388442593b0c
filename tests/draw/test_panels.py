"""What holds for the pictures of all plans that are no timelines."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from planner.model.errors import InvalidInputError
from planner.solving.views import PHASES, Compared, GroupPoint, Groups, LayerTime, Point, Ranking
from planner.view.chart import Chart
from planner.view.drawing import DRAWINGS, GANTT
from tests.draw import test_bars, test_groups, test_rankings, test_yan_pictures
from tests.draw.reading import saved

_LONG_FRONT = tuple(Compared(f"n{i}", "fattree", i, 2**i) for i in range(14))
_NAMES = (LayerTime("<a>&", (1,) * 5), LayerTime("a\x00b" * 40, (1,) * 5))
CHARTS: list[tuple[str, Chart[Any]]] = [
    ("bml", test_bars.compared()),
    ("bml", test_bars.compared(longest=10**14)),
    ("bml", Chart("c", _LONG_FRONT, 1)),
    ("bml", Chart("c", (Compared("n", "bcube", 7 * 10**17, 2**60),), 6 * 10**17)),
    *(("bigdl", test_rankings.chart(bound)) for bound in (None, 0, 100)),
    *(
        ("drizzle", test_groups.chart(most=2**46, chosen=chosen, max_overhead=limit))
        for chosen in (1, 2**10, 2**33, 2**45)
        for limit in (0.02, 1e-16)
    ),
    *(("yan", Chart("yan", test_yan_pictures.scaling(machines))) for machines in (2, 20, 250)),
]


@pytest.mark.parametrize(("problem", "chart"), CHARTS)
def test_no_text_lies_on_another_or_is_cut_off(
    problem: str, chart: Chart[Any], tmp_path: Path
) -> None:
    picture = saved(problem, chart, tmp_path)
    assert len(picture.texts) > 5
    for one, other in combinations(picture.texts, 2):
        assert not one.covers(other), (one, other)
    for one in picture.texts:
        assert one.left >= 0, one
        assert one.right <= picture.width, one
        assert 0 < one.y < picture.height, one


def still() -> list[tuple[str, Chart[Any], str]]:
    """Return charts of what takes no time, and what each says of it."""
    free, points = Point(1, 1, 1, 0), tuple(GroupPoint(size, 0.0, 0) for size in (1, 2, 4))
    zero = test_yan_pictures.chart(
        layers=(LayerTime("x", (0,) * len(PHASES)),), best=free, ranking=(free,)
    )
    groups = Chart("nothing", Groups(points, points[0], 0.1))
    return [
        ("bml", Chart("c", (Compared("a", "bcube", 0, 1),), 0), "0 ns"),
        ("bigdl", Chart("c", Ranking("rotated", (("rotated", 0),)), 0), "0 ns"),
        ("drizzle", groups, "0 ns"),
        ("drizzle", replace(groups, view=replace(groups.view, max_overhead=0.0)), "0.00%"),
        ("yan", zero, "0.0%"),
        ("yan", replace(zero, view=replace(zero.view, front=(free,))), "0.0%"),
    ]


@pytest.mark.parametrize(("problem", "chart", "said"), still())
def test_nothing_takes_time(problem: str, chart: Chart[Any], said: str, tmp_path: Path) -> None:
    assert said in DRAWINGS[problem].text(chart, 80)
    assert any(said in text for text in saved(problem, chart, tmp_path).words)


@pytest.mark.parametrize(
    ("problem", "chart", "names"),
    [
        ("bml", Chart("<t>", (Compared("<x>\x00", "bcube", 2, 1),), 1), {"<t>", "<x>\ufffd"}),
        ("yan", replace(test_yan_pictures.chart(layers=_NAMES), title="<t>"), {"<t>", "<a>&"}),
    ],
)
def test_names_are_no_markup_and_no_control_characters(
    problem: str, chart: Chart[Any], names: set[str], tmp_path: Path
) -> None:
    assert "\x00" not in DRAWINGS[problem].text(chart, 80)
    assert names <= set(saved(problem, chart, tmp_path).words)


@pytest.mark.parametrize("problem", DRAWINGS)
def test_names_of_files_are_those_of_its_formats(problem: str) -> None:
    drawing = DRAWINGS[problem]
    timed = drawing is GANTT
    refused = ("p.png", "p", ".svg", *(() if timed else ("p.json", "p.json.gz")))
    for name in refused:
        with pytest.raises(InvalidInputError, match="expected a name ending in") as error:
            drawing.writer(Path(name))
        assert error.value.message.endswith("a trace)" if timed else ".svg (a chart)")
    assert drawing.writer(Path("plan.svg")) == drawing.save
