"""What happened when on one rank: computation, transfers, and waiting for them.

Times are read from the monotonic clock, which the processes of one machine share; traces of
different machines are each shifted to the start of their own step.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

__all__ = ["Event", "Kind", "Trace"]

Kind = Literal["forward", "backward", "update", "transfer", "wait", "step", "ready"]


class Event(NamedTuple):
    """One stretch of time.

    Attributes
    ----------
    kind : str
        "forward", "backward": a pass; "update": the optimiser; "transfer": a batch in the network;
        "wait": the computation waits for a batch; "step": from the start of one step to the next;
        "ready": the moment in which a batch can leave.
    step : int
        From 0.
    batch : int
        Of the plan; -1 if it concerns none.
    start_ns, end_ns : int
        On the monotonic clock.
    direction : str
        "pull" or "push" where a plan has both; else empty.
    """

    kind: Kind
    step: int
    batch: int
    start_ns: int
    end_ns: int
    direction: str = ""


class Trace:
    """The last events of one rank, added by its threads as they end.

    Parameters
    ----------
    most : int
        How many are kept; one takes some 170 bytes.
    """

    def __init__(self, most: int = 100_000) -> None:
        self._events: deque[Event] = deque(maxlen=most)
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Add an event."""
        with self._lock:
            self._events.append(event)

    @contextmanager
    def span(self, kind: Kind, step: int, batch: int = -1, direction: str = "") -> Iterator[None]:
        """Add what is done inside as an event, however it ends."""
        start = time.monotonic_ns()
        try:
            yield
        finally:
            self.add(Event(kind, step, batch, start, time.monotonic_ns(), direction))

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that are kept, by start."""
        with self._lock:
            return tuple(sorted(self._events, key=lambda event: (event.start_ns, event.end_ns)))

    def since(self, step: int) -> list[Event]:
        """Return the events of steps from this one on, the last to end first.

        Complexity: O(events since).
        """
        several = []
        with self._lock:
            for event in reversed(self._events):
                if event.step < step - 1:  # a step's transfers may end in the next
                    break
                several.append(event)
        return [event for event in several if event.step >= step]

    def clear(self) -> None:
        """Forget all events."""
        with self._lock:
            self._events.clear()
