"""The log of ``--verbose`` on standard error: what is read, solved and written."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from planner.model.units import printable

_SINCE: ContextVar[float | None] = ContextVar("since when things are told", default=None)


@contextmanager
def telling(*, asked: bool) -> Iterator[None]:
    """Turn on `tell` in the block; each line has the seconds since the block began."""
    token = _SINCE.set(time.monotonic() if asked else None)
    try:
        yield
        tell("done")
    finally:
        _SINCE.reset(token)


def tell(text: str) -> None:
    """Write a line to the log, if ``--verbose`` is set."""
    since = _SINCE.get()
    if since is not None and sys.stderr is not None:
        after = time.monotonic() - since
        sys.stderr.write(f"planner: {after:.3f} s: {printable(text)}\n")
        sys.stderr.flush()


def told() -> bool:
    """Return whether ``--verbose`` is set."""
    return _SINCE.get() is not None
