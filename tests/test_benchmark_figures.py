"""Figures of benchmarks on their way into files."""

import warnings
from pathlib import Path

import pytest


def drawn(path: Path, text: str = "hatched") -> bytes:
    """Draw something of everything whose form could change from one run to the next."""
    pytest.importorskip("matplotlib")
    from figures import figure_in

    with figure_in(path) as figure:
        axes = figure.add_subplot()
        axes.bar([0, 1], [2, 1], hatch="//", label=text)
        axes.plot([0, 1], [1, 2], clip_on=True)
        axes.legend()
    return path.read_bytes()


def test_the_same_drawing_gives_the_same_svg(tmp_path: Path) -> None:
    first, second = (drawn(tmp_path / name) for name in ("1.svg", "2.svg"))
    assert first == second
    assert b"<dc:date>" not in first
    assert drawn(tmp_path / "3.svg", "another") != first


def test_names_in_any_script_are_drawn_without_a_warning(tmp_path: Path) -> None:
    """Boxes stand for what the font lacks; other warnings still count, and fail a test here."""
    assert len(drawn(tmp_path / "p.png", text="𒀀 網路")) > 1000
    from figures import figure_in

    with pytest.raises(UserWarning, match="another one"), figure_in(tmp_path / "q.png"):
        warnings.warn("another one", UserWarning, stacklevel=1)
    assert not (tmp_path / "q.png").exists()


def test_ticks_are_numbers_a_person_reads() -> None:
    pytest.importorskip("matplotlib")
    from figures import set_logarithmic
    from matplotlib.figure import Figure

    for limits, expected in (
        ((0.5, 999), ["0.5", "1", "2", "5", "10", "20", "50", "100", "200", "500"]),
        ((3, 2e7), ["10", "100", "1,000", "10,000", "100,000", "1e+06", "1e+07"]),
        ((1.1, 1.9), ["1.2", "1.4", "1.6", "1.8"]),
    ):
        axes = Figure().add_subplot()
        set_logarithmic(axes, "x", limits)
        assert [label.get_text() for label in axes.get_xticklabels()] == expected
