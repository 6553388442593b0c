"""Progress is a line on a terminal, a line now and then elsewhere, and nothing if asked."""

import io
import sys
from collections.abc import Callable, Iterable

import pytest

from planner.view.progress import Progress

Shown = Callable[..., list[str]]
PARTS = [("part", place, 4) for place in range(1, 5)]


@pytest.fixture
def _no_progress() -> None:
    """Leave it on."""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Return the lines that are said of parts of so many seconds each."""

    def lines(
        seconds: float,
        parts: Iterable[tuple[str | int, ...]] = PARTS,
        *,
        terminal: bool = True,
        quiet: bool = False,
    ) -> list[str]:
        screen, now = io.StringIO(), [0.0]
        monkeypatch.setattr(screen, "isatty", lambda: terminal)
        monkeypatch.setattr(sys, "stderr", screen)
        progress = Progress(quiet=quiet, clock=lambda: now[0])
        for part in parts:
            progress(*part)  # type: ignore[arg-type]
            now[0] += seconds
        progress.done()
        return screen.getvalue().split("\r\x1b[K") if terminal else screen.getvalue().splitlines()

    return lines


def test_a_terminal_has_one_line_with_the_time_left(shown: Shown) -> None:
    second, third = "part 2 of 4, about 20 s left", "part 3 of 4, about 10 s left"
    assert shown(10) == ["", "part 1 of 4", second, third, "part 4 of 4", ""]
    assert "part 2 of 4, about 10 min left" in shown(300)
    assert "left" not in "".join(shown(1))  # soon over


def test_elsewhere_there_is_a_line_now_and_then(shown: Shown) -> None:
    lines = ["planner: part 2 of 4, about 40 s left", "planner: part 4 of 4"]
    assert shown(20, terminal=False) == lines
    assert shown(5, terminal=False) == ["planner: part 2 of 4, about 10 s left"]
    assert not shown(1, terminal=False)


def test_the_time_left_is_said_of_texts_that_count_themselves(shown: Shown) -> None:
    methods = [(f"planning {name} ({n} of 3)",) for n, name in enumerate(("ring", "ps", "bml"), 1)]
    assert shown(10, methods)[1:4] == [
        "planning ring (1 of 3)",
        "planning ps (2 of 3), about 20 s left",
        "planning bml (3 of 3), about 10 s left",
    ]


def test_parts_beyond_those_planned_are_no_part_of_them(shown: Shown) -> None:
    lines = shown(0, [("run", 13, 13), ("run", 14, 13)])
    assert lines[:3] == ["", "run 13 of 13", "run 14, more than the 13 planned"]


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_is_said_if_asked(shown: Shown, *, terminal: bool) -> None:
    assert not "".join(shown(100, terminal=terminal, quiet=True))
