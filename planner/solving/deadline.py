"""Deadlines: time limit, cancellation, and progress reports of a solver.

Every method and every bound gets one `Deadline`. It has passed when time is up or the solve is
cancelled; both end a search with its incumbent.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar

from planner.model.errors import InvalidInputError
from planner.model.validation import shown
from planner.solving.result import PlanT

T = TypeVar("T")

_LEAST_S = 0.001
"""Least share of the time left (s), so that a method can make its first plan."""

_LOOK_S = 0.02
"""Polling interval (s) of cancellation while a library runs that cannot check it."""


class TimeUpError(Exception):
    """Raised inside a solver when time is up; never leaves the solver."""


class Cancel(Protocol):
    """A flag that stops a solve: a `threading.Event`, or anything else with `is_set`."""

    def is_set(self) -> bool:
        """Return whether to stop."""


@dataclass(frozen=True, slots=True)
class Incumbent(Generic[PlanT]):
    """Progress of a solver.

    Attributes
    ----------
    plan : Plan
        The best plan so far, verified.
    objective_ns : int
        Its cost.
    lower_bound_ns : int or None
        Lower bound proven so far on the cost of every plan.
    runtime_s : float
        Seconds since the solver began.
    """

    plan: PlanT
    objective_ns: int
    lower_bound_ns: int | None
    runtime_s: float


class Control(TypedDict, Generic[PlanT], total=False):
    """Options that every family's `solve` takes by name, in addition to method and time limit.

    `planner.solving.family.Family.solve` says what they mean.
    """

    on_progress: Callable[[Incumbent[PlanT]], None] | None
    cancel: Cancel | None
    start: PlanT | None
    tie_break: Literal["simple", "robust"] | None


class _Since:
    """A flag that is set this many seconds after another flag was first seen set."""

    def __init__(self, cancel: Cancel, seconds: float) -> None:
        self._cancel = cancel
        self._seconds = seconds
        self._seen: float | None = None

    def is_set(self) -> bool:
        if not self._cancel.is_set():
            return False
        now = time.monotonic()
        if self._seen is None:
            self._seen = now
        return now >= self._seen + self._seconds


class Deadline:
    """Point in time after which a solver returns its incumbent: some seconds from now, or never.

    It has also passed once `cancel` is set. `offered` receives incumbents during the search, with a
    lower bound on all plans or None.
    """

    __slots__ = ("_end", "_offered", "cancel")

    def __init__(
        self,
        seconds: float | None,
        cancel: Cancel | None = None,
        offered: Callable[[Any, int | Fraction | None], object] | None = None,
    ) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self._offered = offered
        self.cancel = cancel

    @classmethod
    def of(cls, limit: Any, cancel: Cancel | None = None) -> "Deadline":
        """Return the deadline of a time limit: seconds above 0, a deadline, or None."""
        if isinstance(limit, Deadline):
            return limit.telling(None)
        number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if limit is not None and not (number and limit > 0):
            raise InvalidInputError("time_limit_s", f"expected a number > 0, got {shown(limit)}")
        return cls(limit, cancel)

    def telling(self, offered: Callable[[Any, int | Fraction | None], object] | None) -> "Deadline":
        """Return the same deadline with another receiver of incumbents, or none."""
        same = Deadline(None, self.cancel, offered)
        same._end = self._end
        return same

    def share(self, parts: int) -> "Deadline":
        """Return the end of an equal share of the time left, at least `_LEAST_S`; no receiver."""
        left = self.remaining_s
        return Deadline(None if left is None else max(left / parts, _LEAST_S), self.cancel)

    @property
    def remaining_s(self) -> float | None:
        """Seconds left, at least 0; None without a limit."""
        if self.cancel is not None and self.cancel.is_set():
            return 0.0
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def at_least(self, seconds: float) -> "Deadline":
        """Return the later of this deadline and this many seconds from now."""
        left = self.remaining_s
        return self if left is None or left >= seconds else Deadline(seconds)

    def later(self, seconds: float) -> "Deadline":
        """Return the deadline moved by this many seconds, which may be negative."""
        cancel = self.cancel
        left = Deadline(None, _Since(cancel, seconds) if cancel and seconds > 0 else cancel)
        left._end = None if self._end is None else self._end + seconds
        return left

    @property
    def passed(self) -> bool:
        """Whether time is up, or the solve is cancelled."""
        if self.cancel is not None and self.cancel.is_set():
            return True
        return self._end is not None and time.monotonic() >= self._end

    def check(self) -> None:
        """Raise `TimeUpError` if the deadline has passed."""
        if self.passed:
            raise TimeUpError

    @property
    def has_listener(self) -> bool:
        """Whether incumbents have a receiver; otherwise no incumbent need be made."""
        return self._offered is not None

    def report_incumbent(self, plan: Any, lower_bound: int | Fraction | None = None) -> None:
        """Report an incumbent, not yet verified or priced, and a lower bound (ns) on all plans."""
        if self._offered is not None:
            self._offered(plan, lower_bound)

    @contextmanager
    def stopping(self, stop: Callable[[], object]) -> Iterator[None]:
        """Call `stop` on cancellation while the block runs a library that cannot check for it."""
        cancel = self.cancel
        if cancel is None:
            yield
            return
        over = threading.Event()

        def look() -> None:
            while not over.wait(_LOOK_S):
                if cancel.is_set():
                    stop()

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join()


NEVER = Deadline(None)
"""No time limit."""


def until_deadline(items: Iterable[T], deadline: Deadline) -> Iterator[T]:
    """Yield the items; raise `TimeUpError` at the deadline, checked every 1024 items."""
    for number, item in enumerate(items):
        if not number % 1024:
            deadline.check()
        yield item
