"""Trace of one rank: computation, transfers, and waiting for them.

Times are those of the monotonic clock, which processes of one machine share. Traces of different
machines are each shifted to the start of their own step.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

Kind = Literal["forward", "backward", "update", "transfer", "wait", "step"]


class Event(NamedTuple):
    """One event of a trace (ns, monotonic clock).

    Kinds: "forward", "backward": a pass; "update": the optimiser; "transfer": a batch in the
    network; "wait": the computation waits for a batch; "step": a whole step.
    """

    kind: Kind
    step: int
    batch: int  # -1 without a batch
    start_ns: int
    end_ns: int
    direction: str = ""  # "pull" or "push" where a plan has both


class Trace:
    """The last 100,000 events of one rank, about 170 bytes each; thread-safe."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=100_000)
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Add an event."""
        with self._lock:
            self._events.append(event)

    @contextmanager
    def span(self, kind: Kind, step: int, batch: int = -1, direction: str = "") -> Iterator[None]:
        """Add an event for the enclosed code, even if it fails."""
        start = time.monotonic_ns()
        try:
            yield
        finally:
            self.add(Event(kind, step, batch, start, time.monotonic_ns(), direction))

    @property
    def events(self) -> tuple[Event, ...]:
        """The recorded events, by start."""
        with self._lock:
            return tuple(sorted(self._events, key=lambda event: (event.start_ns, event.end_ns)))

    def clear(self) -> None:
        """Delete all events."""
        with self._lock:
            self._events.clear()
