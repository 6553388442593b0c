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


def test_a_terminal_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 10, terminal=True).split("\r\x1b[K")
    assert lines == ["", "part 1 of 4", "part 2 of 4", "part 3 of 4", "part 4 of 4", ""]


def test_elsewhere_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 20, terminal=False).splitlines()
    assert lines == ["planner: part 2 of 4", "planner: part 4 of 4"]
    lines = shown(monkeypatch, 5, terminal=False).splitlines()
    assert lines == ["planner: part 2 of 4"]
    assert not shown(monkeypatch, 1, terminal=False)


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
