"""How long a solver may still run, who may stop it, and whom it tells how far it is.

Every method and every bound is given one `Deadline`. It has passed when its time is up or when
somebody cancels; both end a search with the best plan so far.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Protocol, TypedDict, TypeVar

from planner.errors import InvalidInputError
from planner.validation import shown

__all__ = ["NEVER", "Cancel", "Control", "Deadline", "Incumbent", "TimeUpError", "watched"]

T = TypeVar("T")
PlanT = TypeVar("PlanT")

_LEAST_S = 0.001
"""The least share (s) of the time left: a method has time for its first plan."""

_LOOK_S = 0.02
"""How often somebody looks whether to stop a library that cannot ask."""


class TimeUpError(Exception):
    """Raised inside a solver when its time is up; never leaves it."""


class Cancel(Protocol):
    """What says whether to stop: a `threading.Event`, or anything else that can be asked."""

    def is_set(self) -> bool:
        """Return whether to stop."""


@dataclass(frozen=True, slots=True)
class Incumbent(Generic[PlanT]):
    """How far a solver is.

    Attributes
    ----------
    plan : Plan
        The best plan so far, checked.
    objective_ns : int
        What it costs.
    lower_bound_ns : int or None
        What is proven so far of the cost of every plan.
    runtime_s : float
        Seconds since the solver began.
    """

    plan: PlanT
    objective_ns: int
    lower_bound_ns: int | None
    runtime_s: float


class Control(TypedDict, Generic[PlanT], total=False):
    """What every family's `solve` takes by name beside a method and a time limit.

    Attributes
    ----------
    on_progress : callable
        Called with an `Incumbent` whenever there is a better plan or bound, from within the
        solver: what it raises ends the search.
    cancel : Cancel
        Ends the search as the time limit does once it is set, by the callback or another thread.
    start : Plan
        An old plan: if it fits this problem, or fits it with other numbers, the result is no worse;
        else it is ignored, and the result's `warnings` say why. Method ``replan`` does nothing but
        improve it, in milliseconds; then one that does not fit makes the result infeasible.
    tie_break : planner.solving.tie_break.TieBreak
        Which of the plans of equal cost is returned.
    """

    on_progress: Callable[[Incumbent[PlanT]], None] | None
    cancel: Cancel | None
    start: PlanT | None
    tie_break: Any


class _Since:
    """Set so many seconds after something else was seen to be set."""

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
    """A point in time after which a solver returns the best it has.

    Parameters
    ----------
    seconds : float or None
        Time from now; None for no limit.
    cancel : Cancel, optional
        The deadline has passed too once this is set.
    offered : callable, optional
        Told of plans while the search goes on, with a bound on all plans or None.
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
        """Return the deadline that a time limit (seconds, a deadline, or None) and a cancel set.

        Raises
        ------
        InvalidInputError
            If the limit is no number above 0.
        """
        if isinstance(limit, Deadline):
            return limit.telling(None)
        number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if limit is not None and not (number and limit > 0):
            raise InvalidInputError("time_limit_s", f"expected a number > 0, got {shown(limit)}")
        return cls(limit, cancel)

    def telling(self, offered: Callable[[Any, int | Fraction | None], object] | None) -> "Deadline":
        """Return the same point in time, at which somebody else is told of plans, or nobody."""
        same = Deadline(None, self.cancel, offered)
        same._end = self._end
        return same

    def share(self, parts: int) -> "Deadline":
        """Return the end of an equal share of the time left among so many parts; nobody is told.

        A share is never shorter than `_LEAST_S`, so that each part has a plan.
        """
        left = self.remaining_s
        return Deadline(None if left is None else max(left / parts, _LEAST_S), self.cancel)

    @property
    def remaining_s(self) -> float | None:
        """Seconds left, not below 0; None without a limit."""
        if self.cancel is not None and self.cancel.is_set():
            return 0.0
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def within(self, seconds: float | None) -> "Deadline":
        """Return the point so many seconds from now that the same may cancel; nobody is told."""
        return Deadline(seconds, self.cancel)

    def at_least(self, seconds: float) -> "Deadline":
        """Return the later of this point and so many seconds from now."""
        left = self.remaining_s
        return self if left is None or left >= seconds else Deadline(seconds)

    def later(self, seconds: float) -> "Deadline":
        """Return the point so many seconds after this one, or before it."""
        cancel = self.cancel
        left = Deadline(None, _Since(cancel, seconds) if cancel and seconds > 0 else cancel)
        left._end = None if self._end is None else self._end + seconds
        return left

    @property
    def passed(self) -> bool:
        """Whether the time is up, or somebody has cancelled."""
        if self.cancel is not None and self.cancel.is_set():
            return True
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

    @property
    def heard(self) -> bool:
        """Whether anybody is told of plans: else none need be made for it."""
        return self._offered is not None

    def offer(self, plan: Any, lower_bound: int | Fraction | None = None) -> None:
        """Tell of a plan that would be returned now, to whoever listens.

        Parameters
        ----------
        plan : Plan
            Not yet checked or priced.
        lower_bound : int or Fraction, optional
            Bound (ns) on the cost of every plan.
        """
        if self._offered is not None:
            self._offered(plan, lower_bound)

    @contextmanager
    def stopping(self, stop: Callable[[], object]) -> Iterator[None]:
        """Call something once somebody cancels: in the block a library runs that cannot ask."""
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
