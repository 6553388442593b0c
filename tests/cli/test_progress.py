"""Progress is a line on a terminal, a line now and then elsewhere, and nothing if asked."""

import io
import sys
from collections.abc import Iterable

import pytest

from planner.view.progress import Progress

PARTS = [("part", place, 4) for place in range(1, 5)]


@pytest.fixture
def _no_progress() -> None:
    """Leave it on."""


def shown(
    seconds: float,
    patch: pytest.MonkeyPatch,
    parts: Iterable[tuple[str | int, ...]] = PARTS,
    *,
    terminal: bool = True,
    quiet: bool = False,
) -> list[str]:
    """Return the lines that are said of parts of so many seconds each."""
    screen, now = io.StringIO(), [0.0]
    patch.setattr(screen, "isatty", lambda: terminal)
    patch.setattr(sys, "stderr", screen)
    progress = Progress(quiet=quiet, clock=lambda: now[0])
    for part in parts:
        progress(*part)  # type: ignore[arg-type]
        now[0] += seconds
    progress.done()
    return screen.getvalue().split("\r\x1b[K") if terminal else screen.getvalue().splitlines()


def test_a_terminal_has_one_line_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    second, third = "part 2 of 4, about 20 s left", "part 3 of 4, about 10 s left"
    assert shown(10, monkeypatch) == ["", "part 1 of 4", second, third, "part 4 of 4", ""]
    assert "part 2 of 4, about 10 min left" in shown(300, monkeypatch)
    assert "left" not in "".join(shown(1, monkeypatch))  # soon over


def test_elsewhere_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, lines in (
        (20, ["planner: part 2 of 4, about 40 s left", "planner: part 4 of 4"]),
        (5, ["planner: part 2 of 4, about 10 s left"]),
        (1, []),
    ):
        assert shown(seconds, monkeypatch, terminal=False) == lines


def test_texts_may_count_themselves_and_parts_may_be_more(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = [(f"planning {name} ({n} of 3)",) for n, name in enumerate(("ring", "ps", "bml"), 1)]
    lines = ["planning ring (1 of 3)", "planning ps (2 of 3), about 20 s left"]
    assert shown(10, monkeypatch, methods)[1:3] == lines
    lines = ["run 13 of 13", "run 14, more than the 13 planned"]
    assert shown(0, monkeypatch, [("run", 13, 13), ("run", 14, 13)])[1:3] == lines


def test_nothing_is_said_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (True, False):
        assert not "".join(shown(100, monkeypatch, terminal=terminal, quiet=True))
