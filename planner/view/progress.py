"""Progress of long computations, on standard error.

On a terminal: one changing line. Elsewhere, such as in the log of a job: a line every `_EVERY_S`
seconds.
"""

import sys
import time
from collections.abc import Callable

from planner.model.units import printable

_LONG_S = 5.0
"""From this time (s) on lines are written to a log."""
_EVERY_S = 30.0
"""Time between lines of a log (s)."""


class Progress:
    """A progress line on standard error; `clock` returns seconds."""

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet or sys.stderr is None
        self._terminal = not self._quiet and sys.stderr.isatty()
        self._clock = clock
        self._next = clock() + _LONG_S

    def __call__(self, text: str, done: int | None = None, of: int | None = None) -> None:
        """Show a text in place of the last one; part `done` of `of` begins or ends."""
        if self._quiet:
            return
        if done is not None and of is not None:
            count = f"{done} of {of}" if done <= of else f"{done}, more than the {of} planned"
            text = f"{text} {count}"
        now = self._clock()
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
