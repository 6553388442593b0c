"""Progress is a line on a terminal, a line now and then elsewhere, and nothing if asked."""

import io
import sys

import pytest

from planner.view.progress import Progress


@pytest.fixture
def _no_progress() -> None:
    """Leave it on."""


class Screen(io.StringIO):
    """Standard error that is a terminal, or is not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def shown(
    monkeypatch: pytest.MonkeyPatch, seconds: float, *, terminal: bool, quiet: bool = False
) -> str:
    """Return what is said of four parts of so many seconds each."""
    screen, now = Screen(terminal=terminal), [0.0]
    monkeypatch.setattr(sys, "stderr", screen)
    progress = Progress(quiet=quiet, clock=lambda: now[0])
    for part in range(4):
        progress("part", part + 1, 4)
        now[0] += seconds
    progress.done()
    return screen.getvalue()


def test_a_terminal_has_one_line_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 10, terminal=True).split("\r\x1b[K")
    assert lines[2:4] == ["part 2 of 4, about 20 s left", "part 3 of 4, about 10 s left"]
    assert (lines[0], lines[1], lines[4], lines[5]) == ("", "part 1 of 4", "part 4 of 4", "")


def test_minutes_are_said_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "part 2 of 4, about 10 min left" in shown(monkeypatch, 300, terminal=True)


def test_what_is_soon_over_says_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "left" not in shown(monkeypatch, 1, terminal=True)


def test_elsewhere_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 20, terminal=False).splitlines()
    assert lines == [
        "planner: part 2 of 4, about 40 s left",
        "planner: part 4 of 4",
    ]
    lines = shown(monkeypatch, 5, terminal=False).splitlines()
    assert lines == ["planner: part 2 of 4, about 10 s left"]
    assert not shown(monkeypatch, 1, terminal=False)


def test_the_time_left_is_said_of_texts_that_count_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen, now = Screen(terminal=True), [0.0]
    monkeypatch.setattr(sys, "stderr", screen)
    progress = Progress(clock=lambda: now[0])
    for place, method in enumerate(("ring", "ps", "bml"), start=1):
        progress(f"planning {method} ({place} of 3)")
        now[0] += 10
    lines = screen.getvalue().split("\r\x1b[K")
    assert lines[1:] == [
        "planning ring (1 of 3)",
        "planning ps (2 of 3), about 20 s left",
        "planning bml (3 of 3), about 10 s left",
    ]


def test_parts_beyond_those_planned_are_no_part_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    progress = Progress(clock=lambda: 0.0)
    for run in (13, 14):
        progress("run", run, 13)
    lines = screen.getvalue().split("\r\x1b[K")
    assert lines == ["", "run 13 of 13", "run 14, more than the 13 planned"]


def test_nothing_is_said_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not shown(monkeypatch, 100, terminal=True, quiet=True)
    assert not shown(monkeypatch, 100, terminal=False, quiet=True)
