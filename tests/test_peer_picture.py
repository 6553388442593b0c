"""Pictures of standings: every case and mean is there, and no text lies on another."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from peer_cases import Ratios, Standing
from peer_picture import PeersChart, save_peers

GAINS = {"joint": (1.3, 2.0), "ddp": (1.0, 1.0), "ps": (0.25, 1.1), "bigdl": (0.5, 0.4)}


def chart(scales: int = 2, bound: float = 1.0) -> PeersChart:
    """Four methods with two cases each, and one without any, at some scales."""
    rows = [
        Standing(name, 2, Ratios(gains), Ratios(tuple(bound * 2.01 / gain for gain in gains)))
        for name, gains in GAINS.items()
    ]
    rows.append(Standing("bml", 0, None, None))
    return PeersChart("two cases", tuple((0.1**power, tuple(rows)) for power in range(scales)))


def drawn(given: PeersChart) -> Any:
    """Return the figure, laid out."""
    pytest.importorskip("matplotlib")
    from figures import write_title
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from peer_picture import _fill

    figure = Figure(dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    write_title(figure, given.title)
    _fill(figure, given)
    figure.draw_without_rendering()
    return figure


def texts_in(figure: Any) -> list[tuple[str, Any]]:
    """Return everything that is written, and where."""
    texts = [figure._suptitle]
    for legend in figure.legends:
        texts += legend.get_texts()
    for axes in figure.axes:
        texts += [axes._left_title, axes.xaxis.label, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            texts += [
                tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
            ]
    renderer = figure.canvas.get_renderer()
    shown = [text for text in texts if text.get_text()]
    return [(one.get_text(), one.get_window_extent(renderer)) for one in shown]


@pytest.mark.parametrize("given", [chart(), chart(1), chart(4), chart(2, 40.0)])
def test_no_text_lies_on_another_or_outside(given: PeersChart) -> None:
    figure = drawn(given)
    texts = texts_in(figure)
    for (one, box), (other, box2) in combinations(texts, 2):
        assert not box.overlaps(box2), f"{one} on {other}"
    for text, box in texts:
        assert box.x0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y0 >= 0, text
        assert box.y1 <= figure.bbox.y1, text


def test_every_case_range_and_mean_is_drawn() -> None:
    given = chart()
    gains, distances = drawn(given).axes
    assert [tick.get_text() for tick in gains.get_yticklabels()] == [
        "joint (joint plan)",
        "ddp",
        "ps",
        "bigdl",
        "bml",
    ]
    for axes, field in ((gains, "speedup"), (distances, "over_bound")):
        lines = [tuple(map(float, line.get_xdata())) for line in axes.lines]
        for _, standings in given.scales:
            for standing in standings:
                spread = getattr(standing, field)
                if spread is not None:
                    assert lines.count(tuple(dict.fromkeys(spread.values))) >= 2  # one a scale
                    assert lines.count((spread.least, spread.most)) >= 2
                    assert lines.count((spread.mean,)) >= 2
        low, high = axes.get_xlim()
        assert all(low < value < high for line in lines for value in line if line != (0.0, 1.0))
        assert 1.0 in axes.get_xticks()
        assert axes.get_xscale() == "log"


def test_means_stand_at_the_ends_of_their_rows() -> None:
    gains, distances = drawn(chart(1)).axes
    shown = [text.get_text() for text in gains.texts]
    assert shown[:2] == ["1.61× (1.30–2.00)", "1.00× (1.00–1.00)"]
    assert shown[2:] == ["0.52× (0.25–1.10)", "0.45× (0.40–0.50)", "–", "mean (range)"]
    shown = [text.get_text() for text in distances.texts]
    assert shown[:3] == ["25% (55%)", "101% (101%)", "283% (704%)"]


def test_a_range_beyond_the_axis_ends_in_an_arrow() -> None:
    cases = (*(1.0,) * 30, 0.01, 50.0)
    far = (Standing("ddp", 32, Ratios((1.0,)), None), Standing("ps", 32, Ratios(cases), None))
    gains, _ = drawn(PeersChart("far", ((1.0, far),))).axes
    low, high = gains.get_xlim()
    assert 0.01 < low < 1 / 3 < 3 < high < 50
    arrows = {line.get_marker(): float(line.get_xdata()[0]) for line in gains.lines}
    assert (arrows["<"], arrows[">"]) == (low, high)
    inside = [tuple(line.get_xdata()) for line in gains.lines if line.get_marker() == "o"]
    assert (1.0,) in inside
    assert all(low <= value <= high for values in inside for value in values)


def test_scales_differ_in_shape_too() -> None:
    figure = drawn(chart(4))
    markers = [line.get_marker() for line in figure.legends[0].get_lines()]
    assert len(set(markers)) == len(markers) == 5


def test_the_same_chart_gives_the_same_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg"):
        save_peers(chart(), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
