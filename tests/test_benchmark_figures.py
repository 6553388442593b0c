"""Figures of benchmarks: what is drawn, and what becomes of it in files."""

import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from figures import figure_in, set_logarithmic
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


def test_the_same_drawing_gives_the_same_svg_and_any_script_no_warning(tmp_path: Path) -> None:
    """Boxes stand for what the font lacks; other warnings still count, and fail a test here."""
    first, second = (file_of(tmp_path / name) for name in ("1.svg", "2.svg"))
    assert first == second
    assert b"<dc:date>" not in first
    assert file_of(tmp_path / "3.svg", "𒀀 網路") != first
    with pytest.raises(UserWarning, match="another one"), figure_in(tmp_path / "q.png"):
        warnings.warn("another one", UserWarning, stacklevel=1)
    assert not (tmp_path / "q.png").exists()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((0.5, 999), "0.5 1 2 5 10 20 50 100 200 500"),
        ((3, 2e7), "10 100 1,000 10,000 100,000 1e+06 1e+07"),
        ((1.1, 1.9), "1.2 1.4 1.6 1.8"),
    ],
)
def test_ticks_are_numbers_a_person_reads(limits: tuple[float, float], expected: str) -> None:
    axes = Figure().add_subplot()
    set_logarithmic(axes, "x", limits)
    assert [label.get_text() for label in axes.get_xticklabels()] == expected.split()


def test_means_and_ranges_stand_at_the_ends_of_their_rows() -> None:
    """Of a method with two cases, one whose range is beyond the axis, and one without any."""
    far = (*(1.0,) * 30, 0.01, 50.0)
    rows = (
        Standing("joint", 2, Ratios((1.3, 2.0)), Ratios((1.01, 1.55))),
        Standing("ps", 32, Ratios(far), None),
        Standing("bml", 0, None, None),
    )
    figure: Any = Figure(dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    _fill(figure, PeersChart("some cases", ((1.0, rows),)))
    figure.draw_without_rendering()
    gains, distances = figure.axes
    named = [tick.get_text() for tick in gains.get_yticklabels()]
    assert named == ["joint (joint plan)", "ps", "bml"]
    shown = [text.get_text() for text in gains.texts]
    assert shown == ["1.61× (1.30–2.00)", "0.98× (0.01–50.00)", "–", "mean (range)"]
    assert distances.texts[0].get_text() == "25% (55%)"
    low, high = gains.get_xlim()
    assert 0.01 < low < 1 / 3 < 3 < high < 50
    arrows = {line.get_marker(): float(line.get_xdata()[0]) for line in gains.lines}
    assert (arrows["<"], arrows[">"]) == (low, high)
