"""Figures on their way into files: the same each time, whole or not at all."""

import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from planner.model.errors import MissingExtraError, PlannerError
from planner.view.figure import figure_in


def drawn(path: Path, *, arranged: bool = True, text: str = "hatched") -> bytes:
    """Draw something of everything whose form could change from one run to the next."""
    with figure_in(path, arranged=arranged) as figure:
        axes = figure.add_subplot()
        axes.bar([0, 1], [2, 1], hatch="//", label=text)
        axes.plot([0, 1], [1, 2], clip_on=True)
        axes.legend()
    return path.read_bytes()


def draw_and_fail(figure: Any) -> None:
    figure.add_subplot()
    raise ZeroDivisionError


@pytest.mark.parametrize("arranged", [True, False])
def test_the_same_drawing_gives_the_same_svg(arranged: bool, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, second = (drawn(tmp_path / name, arranged=arranged) for name in ("1.svg", "2.svg"))
    assert first == second
    assert b"<dc:date>" not in first
    assert drawn(tmp_path / "3.svg", arranged=arranged, text="another") != first


def test_the_suffix_says_the_format(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, start in (("p.svg", b"<?xml"), ("p.png", b"\x89PNG"), ("p.pdf", b"%PDF")):
        assert drawn(tmp_path / name).startswith(start)


def test_room_is_made_only_if_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for arranged in (True, False):
        with figure_in(tmp_path / "p.svg", arranged=arranged) as figure:
            assert (figure.get_layout_engine() is not None) == arranged


def test_without_matplotlib_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = tmp_path / "p.svg"
    with pytest.raises(MissingExtraError) as caught, figure_in(path):
        pytest.fail("there is nothing to draw on")
    assert str(caught.value) == (
        "matplotlib is needed here: pip install '.[plot]' in a clone of planner's repository"
    )
    assert caught.value.extra == "plot"
    assert isinstance(caught.value, PlannerError)
    assert caught.value.__suppress_context__
    assert not path.exists()


@pytest.mark.parametrize("old", [None, b"an older picture"])
def test_nothing_is_saved_if_drawing_fails(old: bytes | None, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "p.svg"
    if old is not None:
        path.write_bytes(old)
    with pytest.raises(ZeroDivisionError), figure_in(path) as figure:
        draw_and_fail(figure)
    assert (path.read_bytes() if path.exists() else None) == old


@pytest.mark.parametrize("fails", [False, True])
def test_settings_and_warnings_are_left_as_they_were(fails: bool, tmp_path: Path) -> None:
    mpl = pytest.importorskip("matplotlib")
    before, filters = dict(mpl.rcParams), list(warnings.filters)
    with (
        pytest.raises(ZeroDivisionError) if fails else nullcontext(),
        figure_in(tmp_path / "p.svg") as figure,
    ):
        assert dict(mpl.rcParams) != before
        (draw_and_fail if fails else str)(figure)
    assert dict(mpl.rcParams) == before
    assert warnings.filters == filters


def test_names_in_any_script_are_drawn_without_a_warning(tmp_path: Path) -> None:
    """Boxes stand for what the font lacks; other warnings still count, and fail a test here."""
    pytest.importorskip("matplotlib")
    assert len(drawn(tmp_path / "p.png", text="𒀀 網路")) > 1000
    with (
        pytest.raises(UserWarning, match="another one"),
        figure_in(tmp_path / "q.png"),
    ):
        warnings.warn("another one", UserWarning, stacklevel=1)
    assert not (tmp_path / "q.png").exists()


def test_no_figure_is_left_open(tmp_path: Path) -> None:
    """Drawing goes past pyplot, which keeps figures, and may need a screen."""
    pytest.importorskip("matplotlib")
    drawn(tmp_path / "p.svg")
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []
