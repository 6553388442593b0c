"""Figures of benchmarks: what is drawn, and what becomes of it in files."""

import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from figures import figure_in, set_logarithmic, write_title
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from peer_cases import Ratios, Standing
from peer_picture import PeersChart, _fill


def file_of(path: Path, text: str = "hatched") -> bytes:
    """Draw something of everything whose form could change from one run to the next."""
    with figure_in(path) as figure:
        axes = figure.add_subplot()
        axes.bar([0, 1], [2, 1], hatch="//", label=text)
        axes.plot([0, 1], [1, 2], clip_on=True)
        axes.legend()
    return path.read_bytes()


def test_the_same_drawing_gives_the_same_svg(tmp_path: Path) -> None:
    first, second = (file_of(tmp_path / name) for name in ("1.svg", "2.svg"))
    assert first == second
    assert b"<dc:date>" not in first
    assert file_of(tmp_path / "3.svg", "another") != first


def test_names_in_any_script_are_drawn_without_a_warning(tmp_path: Path) -> None:
    """Boxes stand for what the font lacks; other warnings still count, and fail a test here."""
    assert len(file_of(tmp_path / "p.png", text="𒀀 網路")) > 1000
    with pytest.raises(UserWarning, match="another one"), figure_in(tmp_path / "q.png"):
        warnings.warn("another one", UserWarning, stacklevel=1)
    assert not (tmp_path / "q.png").exists()


def test_ticks_are_numbers_a_person_reads() -> None:
    for limits, expected in (
        ((0.5, 999), ["0.5", "1", "2", "5", "10", "20", "50", "100", "200", "500"]),
        ((3, 2e7), ["10", "100", "1,000", "10,000", "100,000", "1e+06", "1e+07"]),
        ((1.1, 1.9), ["1.2", "1.4", "1.6", "1.8"]),
    ):
        axes = Figure().add_subplot()
        set_logarithmic(axes, "x", limits)
        assert [label.get_text() for label in axes.get_xticklabels()] == expected


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
    figure = Figure(dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    write_title(figure, given.title)
    _fill(figure, given)
    figure.draw_without_rendering()
    return figure


def test_every_case_range_and_mean_is_drawn() -> None:
    given = chart()
    gains, distances = drawn(given).axes
    named = [tick.get_text() for tick in gains.get_yticklabels()]
    assert named == ["joint (joint plan)", "ddp", "ps", "bigdl", "bml"]
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
