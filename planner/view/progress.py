"""Progress of long computations, on standard error.

On a terminal: one changing line, with the estimated time left. Elsewhere, such as in the log of a
job: a line every `_EVERY_S` seconds.
"""

import re
import sys
import time
from collections.abc import Callable

from planner.model.units import printable

_COUNT = re.compile(r"(\d+) of (\d+)")
_LONG_S = 5.0
"""From this time (s) on the time left is shown, and lines are written to a log."""
_EVERY_S = 30.0
"""Time between lines of a log (s)."""


class Progress:
    """A progress line on standard error; `clock` returns seconds."""

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet or sys.stderr is None
        self._terminal = not self._quiet and sys.stderr.isatty()
        self._clock = clock
        self._start = self._begun = clock()
        self._next = self._start + _LONG_S
        self._parts: tuple[str, int] | None = None

    def __call__(self, text: str, done: int | None = None, of: int | None = None) -> None:
        """Show a text in place of the last one; part `done` of `of` begins or ends.

        The text may also say itself which part begins: ``ring (2 of 8)``.
        """
        if self._quiet:
            return
        now = self._clock()
        if done is not None and of is not None:
            count = f"{done} of {of}" if done <= of else f"{done}, more than the {of} planned"
            text = f"{text} {count}{self._left(text, done, of, now)}"
        elif counted := _COUNT.search(text):
            text += self._left(counted[2], int(counted[1]) - 1, int(counted[2]), now)
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{printable(text)}")
            sys.stderr.flush()
        elif text and now >= self._next:
            self._next = now + _EVERY_S
            sys.stderr.write(f"planner: {printable(text)}\n")
            sys.stderr.flush()

    def done(self) -> None:
        """Remove the line."""
        self("")

    def _left(self, text: str, done: int, of: int, now: float) -> str:
        """Return the estimated time left, if all parts take equally long."""
        if self._parts is None or self._parts[0] != text or done < self._parts[1]:
            self._parts, self._begun = (text, done), now
        parts = done - self._parts[1]
        passed = now - self._begun
        if parts <= 0 or done >= of or now - self._start < _LONG_S:
            return ""
        left = passed * (of - done) / parts
        return f", about {left / 60:.0f} min left" if left >= 120 else f", about {left:.0f} s left"
