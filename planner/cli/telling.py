"""What is read, solved and written: said on standard error if ``--verbose`` asks for it."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from planner.printing import printable

__all__ = ["tell", "telling", "told"]

_SINCE: ContextVar[float | None] = ContextVar("since when things are told", default=None)


@contextmanager
def telling(*, asked: bool) -> Iterator[None]:
    """Have `tell` say things in the block, each with the seconds since its begin."""
    token = _SINCE.set(time.monotonic() if asked else None)
    try:
        yield
        tell("done")
    finally:
        _SINCE.reset(token)


def tell(text: str) -> None:
    """Say what is being done, if that was asked for."""
    since = _SINCE.get()
    if since is not None and sys.stderr is not None:
        after = time.monotonic() - since
        sys.stderr.write(f"planner: {after:.3f} s: {printable(text)}\n")
        sys.stderr.flush()


def told() -> bool:
    """Tell whether `tell` says anything."""
    return _SINCE.get() is not None
