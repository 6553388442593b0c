"""Pictures of configurations: where the time goes, the ranking and the Pareto front."""

from dataclasses import replace
from math import hypot
from pathlib import Path
from typing import Any

import pytest

from planner.model.errors import InvalidInputError
from planner.solving.views import (
    PHASES,
    LayerTime,
    Point,
    Range,
    Scaling,
    epoch_text,
)
from planner.view import DRAWINGS, GANTT, Chart
from planner.view.panels import save_scaling
from planner.view.scaling import grouped, slowdown_text, text_scaling
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
    steps: list[Point] = []
    for one in sorted(
        (point(pair.workers, pair.replicas) for pair in pairs),
        key=lambda one: (one.machines, one.epoch_ns),
    ):
        if not steps or (one.epoch_ns < steps[-1].epoch_ns and one.machines > steps[-1].machines):
            steps.append(one)
    times = tuple(
        LayerTime(f"layer{place}", tuple(10**9 * (place + phase) for phase in range(5)))
        for place in range(layers)
    )
    return Scaling(times, ranking[0], tuple(ranking[:8]), tuple(steps) if front else ())


def chart(**change: Any) -> Chart[Scaling]:
    return Chart("yan · exact", replace(scaling(front=False), **change), 7)


def saved(drawn: Chart[Scaling], folder: Path, name: str = "p.svg") -> str:
    pytest.importorskip("matplotlib")
    save_scaling(drawn, folder / name)
    return (folder / name).read_text() if name.endswith("svg") else ""


def test_text_has_a_bar_a_layer_in_proportion() -> None:
    layers = (
        LayerTime("conv", (10 * 10**9, 20 * 10**9, 5 * 10**9, 5 * 10**9, 0)),
        LayerTime("fc", (0, 0, 0, 10 * 10**9, 10 * 10**9)),
    )
    lines = text_scaling(chart(layers=layers), 70).splitlines()
    assert lines[0] == "yan · exact"
    conv, full = lines[2:4]
    bar = conv.split()[1]
    assert set(bar) == set("fbuc")
    assert bar.count("b") == pytest.approx(2 * bar.count("f"), abs=1)
    assert len(bar) == pytest.approx(2 * len(full.split()[1]), abs=1)
    assert conv.split()[2:] == ["40", "s", "66.7%"]
    assert full.split()[2:] == ["20", "s", "33.3%"]
    assert all(len(line) == 70 for line in (conv, full))
    assert lines[5] == "f forward · b backward · u update · c communication · w weight reading"


def test_text_has_the_ranking_with_the_slowdown() -> None:
    points = (Point(4, 4, 4, 10**10), Point(2, 8, 4, 15 * 10**9))
    text = text_scaling(chart(ranking=points))
    rows = [line.split() for line in text.split("\n\n")[3].splitlines()]
    names = ["rank", "workers", "replicas", "servers", "machines", "epoch", "slower", "by"]
    assert rows[0] == names
    assert rows[2] == ["1", "4", "4", "4", "20", "10", "s", "0%"]
    assert rows[3] == ["2", "2", "8", "4", "20", "15", "s", "50.00%"]


def test_text_shows_the_other_parts_only_if_there_are_any() -> None:
    bare = text_scaling(chart())
    for words in ("best for each number", "factors of each constant"):
        assert words not in bare
    full = scaling()
    more = chart(front=full.front, ranges=(Range("muladd_ns", 0.5, None),))
    text = text_scaling(more)
    assert "best for each number of machines" in text
    row = next(line for line in text.splitlines() if line.startswith("muladd_ns"))
    assert row.split() == ["muladd_ns", "0.5", "–"]


def test_many_layers_share_rows_and_nothing_is_lost() -> None:
    times = scaling(layers=100).layers
    for most in (1, 7, 48, 100):
        rows = grouped(times, most)
        assert len(rows) <= most
        assert sum(row.total_ns for row in rows) == sum(time.total_ns for time in times)
    assert grouped(times, 48)[0].name == "layers 0 … 2"
    assert grouped(times, 48)[-1].name == "layers 99 … 99"
    assert "layers 0 … 4" in text_scaling(chart(layers=times))


def test_nothing_takes_time() -> None:
    zero = LayerTime("x", (0,) * len(PHASES))
    free = Point(1, 1, 1, 0)
    still = chart(layers=(zero,), best=free, ranking=(free,), front=(free,))
    assert "0.0%" in text_scaling(still)


def test_nothing_takes_time_in_a_picture(tmp_path: Path) -> None:
    zero = LayerTime("x", (0,) * len(PHASES))
    free = Point(1, 1, 1, 0)
    still = chart(layers=(zero,), best=free, ranking=(free,))
    saved(still, tmp_path)
    saved(replace(still, view=replace(still.view, front=(free,))), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machines", "front", "words"),
    [
        (2, False, "the best of each"),
        (2, True, "the best with so many"),
        (100 if THOROUGH else 20, True, "the best with so many"),
    ],
)
def test_panels_are_those_there_is_something_for(
    machines: int, front: bool, words: str, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    import matplotlib as mpl

    drawn = Chart("yan", scaling(machines, front=front))
    with mpl.rc_context({"svg.fonttype": "none"}):
        text = saved(drawn, tmp_path)
        if machines == 2:
            assert text == saved(drawn, tmp_path, "again.svg")
    for panel in ("where the time of an epoch goes", words):
        assert panel in text
    for other in ("the best of each", "the best with so many"):
        assert (other in text) == (other == words)
    assert text.count('id="axes_') == 2


@pytest.mark.slow
@pytest.mark.parametrize("front", [False, True])
def test_sensitivity_has_a_panel_of_its_own(front: bool, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    import matplotlib as mpl

    ranges = (
        Range("muladd_ns", 0.374, None),
        Range("$x$", None, None),
        Range("latency_ns", 1e-200, 5e-324),
        Range("nic_bits_per_s", 1.0, 1e300),
    )
    drawn = Chart("yan", replace(scaling(front=front), ranges=ranges))
    with mpl.rc_context({"svg.fonttype": "none"}):
        text = saved(drawn, tmp_path)
    for words in ("muladd_ns", "0.374", "$x$", "factor of the constant", "stays the best"):
        assert words in text


def test_an_axis_may_have_a_number_at_both_ends() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    from planner.view.figure import set_ticks

    for low, high, expected in (
        (1.0, 100.0, ["1", "2", "5", "10", "20", "50", "100"]),
        (99.0, 201.0, ["99", "125", "150", "175", "201"]),
        (12345.6, 12345.7, ["12,345.6", "12,345.7"]),
        (4.9, 20345.0, ["4.9", "10", "100", "1,000", "10,000", "20,345"]),
    ):
        axis = Figure().add_subplot().yaxis
        set_ticks(axis, low, high, ends=True)
        axis.axes.set_ylim(low, high)
        found = [label.get_text() for label in axis.get_ticklabels()]
        assert (found[0], found[-1]) == (expected[0], expected[-1])
        if len(expected) > 2:
            assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("steepness", [0.001, 0.1, 1, 3])
@pytest.mark.parametrize("machines", [9, 20, 100] if THOROUGH else [9, 100])
def test_labels_are_nearest_to_their_own_points(machines: int, steepness: float) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from planner.view.panels import draw_front, thin_out

    front = tuple(
        Point(1, replicas, 1, round(10**12 / replicas**steepness))
        for replicas in range(1, machines)
    )
    figure = Figure(figsize=(5.5, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    labels = draw_front(axes, front, front[-1], 5.5)
    figure.draw_without_rendering()
    thin_out(labels)
    touching = 6 * figure.dpi / 72
    points = [axes.transData.transform(label.xy) for label in labels]

    def distance(box: Any, point: Any) -> float:
        x, y = min(max(point[0], box.x0), box.x1), min(max(point[1], box.y0), box.y1)
        return hypot(point[0] - x, point[1] - y)

    assert labels[-1].get_visible()
    for label, own in zip(labels, points, strict=True):
        if label.get_visible():
            box = label.get_window_extent()
            apart = [one for one in points if hypot(*(one - own)) > touching]
            assert all(distance(box, one) > distance(box, own) for one in apart)


def test_names_are_no_formulas(tmp_path: Path) -> None:
    names = (LayerTime("$\\frac{$", (1,) * 5), LayerTime("a\x00b" * 40, (1,) * 5))
    saved(replace(chart(layers=names), title="$x$"), tmp_path)


@pytest.mark.slow
def test_every_format_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("p.png", "p.pdf"):  # the others here are SVG
        DRAWINGS["yan"].writer(tmp_path / name)(Chart("t", scaling(6)), tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000


def test_a_trace_is_refused_with_the_reason() -> None:
    for name in ("p.json", "p.json.gz"):
        with pytest.raises(InvalidInputError, match="says only how long they take"):
            DRAWINGS["yan"].writer(Path(name))
    for drawing, ending in ((DRAWINGS["yan"], "a chart)"), (GANTT, "a trace)")):
        for name in ("p.bmp", "p", ".svg"):
            with pytest.raises(InvalidInputError, match="expected a name ending in") as error:
                drawing.writer(Path(name))
            assert error.value.message.endswith(ending)


@pytest.mark.slow
@pytest.mark.parametrize("machines", [9, 20, 1000 if THOROUGH else 250])
@pytest.mark.parametrize("width", [5.5, 11.0])
def test_labels_do_not_lie_on_one_another(machines: int, width: float) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from planner.view.panels import draw_front, thin_out

    front = tuple(Point(1, replicas, 1, 10**15 // replicas) for replicas in range(1, machines))
    figure = Figure(figsize=(width, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    labels = draw_front(axes, front, front[-1], width)
    figure.draw_without_rendering()
    thin_out(labels)
    kept = [label for label in labels if label.get_visible()]
    assert labels[-1] in kept
    assert labels[-1].get_text() == front[-1].label
    assert len(kept) > 2
    boxes = [label.get_window_extent() for label in kept]
    assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[:place])
    assert max(box.x1 for box in boxes) <= figure.bbox.x1


def test_ticks_are_numbers_a_person_reads() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    from planner.view.figure import set_range

    for limits, expected in (
        ((0.5, 999), ["1", "2", "5", "10", "20", "50", "100", "200", "500"]),
        ((3, 2e7), ["10", "100", "1,000", "10,000", "100,000", "1e+06", "1e+07"]),
        ((1.1, 1.9), ["1.2", "1.4", "1.6", "1.8"]),
    ):
        axes = Figure().add_subplot()
        set_range(axes, "x", limits, logarithmic=True, whole=True)
        assert [label.get_text() for label in axes.get_xticklabels()] == expected


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
