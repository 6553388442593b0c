"""How long a solver may still run."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["NEVER", "Deadline", "TimeUpError", "watched"]

T = TypeVar("T")


class TimeUpError(Exception):
    """Raised inside a solver when its time is up; never leaves it."""


class Deadline:
    """A point in time after which a solver returns the best it has.

    Parameters
    ----------
    seconds : float or None
        Time from now; None for no limit.
    """

    __slots__ = ("_end",)

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def remaining_s(self) -> float | None:
        """Seconds left, not below 0; None without a limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def at_least(self, seconds: float) -> "Deadline":
        """Return the later of this point and so many seconds from now."""
        left = self.remaining_s
        return self if left is None or left >= seconds else Deadline(seconds)

    def later(self, seconds: float) -> "Deadline":
        """Return the point so many seconds after this one."""
        left = Deadline(None)
        left._end = None if self._end is None else self._end + seconds
        return left

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return self._end is not None and time.monotonic() >= self._end

    def check(self) -> None:
        """Raise an error if the time is up.

        Raises
        ------
        TimeUpError
            For the solver, which then returns what it has.
        """
        if self.passed:
            raise TimeUpError


NEVER = Deadline(None)
"""No limit."""


def watched(items: Iterable[T], deadline: Deadline) -> Iterator[T]:
    """Yield the items, looking at the clock once in a thousand.

    Raises
    ------
    TimeUpError
        At the deadline.
    """
    for number, item in enumerate(items):
        if not number % 1024:
            deadline.check()
        yield item
