"""The channel of a rank's transfers: one thread and a queue with the same order on all ranks.

Problem: All ranks must begin transfers in the same order, since gloo matches them by order. The
network should not idle between two transfers, nor the computing processor do much work for them.
Method: Transfers that gloo can queue (`begin`) are queued by the thread that makes them ready; the
channel's thread only waits for them. Others run in the channel's thread.
Guarantee: Transfers begin on all ranks in the order of submission. After a failure no transfer
begins.
Complexity: O(1) per transfer.
"""

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from planner.model.errors import PlannerError
from planner.runtime.executors.trace import Event, Trace
from planner.runtime.world.world import World

_LOOK_S = 0.1


@dataclass(slots=True, eq=False)
class Ticket:
    """Work in the channel's queue: a transfer, or a step between two transfers."""

    work: Callable[[], object]  # does the work, or completes what `begin` has begun
    step: int
    batch: int
    direction: str = ""  # "pull" or "push" where a plan has both
    kind: Literal["transfer", "update"] = "transfer"  # of its trace event
    begin: Callable[[], None] | None = None  # puts the transfer into gloo's queue, in any thread
    ready: bool = False
    done: bool = False
    awaited: bool = False
    begun_ns: int = 0
    error: Exception | None = None


class Channel:
    """The thread and its queue; `reported` says whether the training loop has received an error."""

    def __init__(self, world: World, trace: Trace) -> None:
        self.reported = False
        self._world = world
        self._trace = trace
        self._queue: deque[Ticket] = deque()
        self._going: deque[Ticket] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="planner-channel", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def submit(self, tickets: Iterable[Ticket]) -> None:
        """Queue tickets behind all earlier ones."""
        with self._changed:
            self._queue.extend(tickets)
            self._advance()

    def release(self, ticket: Ticket) -> None:
        """Mark a ticket as ready."""
        with self._changed:
            ticket.ready = True
            self._advance()

    def wait(self, ticket: Ticket) -> None:
        """Wait for a ticket; a failed transfer or a stopped rank raises a `CommunicationError`."""
        if ticket.done:  # without the lock: it only ever goes from False to True
            return
        with self._trace.span("wait", ticket.step, ticket.batch, ticket.direction), self._changed:
            ticket.awaited = True
            while not ticket.done:
                self.check()
                self._changed.wait(_LOOK_S)

    def check(self) -> None:
        """Raise the known failure, if there is one, in the training loop."""
        error = self._error or self._world.watch.error
        if error is not None:
            self.reported = True
            raise error

    def close(self) -> None:
        """Drop the tickets that have not begun, and end the thread.

        Waits for transfers that have begun, which end or fail within the time-out: Python aborts if
        it exits while a thread is inside gloo.
        """
        atexit.unregister(self.close)
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()
        self._thread.join(timeout=self._world.timeout_s + 1)

    def _advance(self) -> None:
        """Begin the tickets that can begin, in order; called with the lock."""
        idle = not self._going
        # Only the head of the queue may begin, so that the order of the plan holds whatever becomes
        # ready first.
        while self._queue and self._queue[0].ready and not self._closed:
            # Transfers in gloo's queue keep their order; any other waits until the channel is free.
            if self._going and None in (self._queue[0].begin, self._going[-1].begin):
                break
            self._begin(self._queue.popleft())
        if idle and self._going:
            self._changed.notify_all()

    def _begin(self, ticket: Ticket) -> None:
        if ticket.begin is not None:
            try:
                ticket.begin()
            except Exception as error:  # the thread reports it to all ranks
                ticket.error = error
        ticket.begun_ns = time.monotonic_ns()
        self._going.append(ticket)

    def _next(self) -> Ticket | None:
        """Return the oldest ticket that has begun; None at the end."""
        with self._changed:
            while not self._going:
                if self._closed:
                    return None
                self._changed.wait()
            return self._going[0]

    def _run(self) -> None:
        ended = 0
        while True:
            try:
                ticket = self._next()
                if ticket is None:
                    return
                try:
                    with self._world.transferring(ticket.step, ticket.batch):
                        if ticket.error is not None:
                            raise ticket.error
                        ticket.work()
                finally:
                    begun, ended = max(ticket.begun_ns, ended), time.monotonic_ns()
                    named = ticket.step, ticket.batch, begun, ended, ticket.direction
                    self._trace.add(Event(ticket.kind, *named))
            except Exception as error:  # raised where the training loop waits
                self._fail(error)
                return
            # Set under the lock after the work, so that a reader of `done` sees the data.
            with self._changed:
                self._going.popleft()
                ticket.done = True
                self._advance()
                if ticket.awaited:
                    self._changed.notify_all()
            del ticket  # frees the gradients it has sent

    def _fail(self, error: Exception) -> None:
        """Raise an error in waiting threads, and wait for the rest of gloo's queue to fail too."""
        with self._changed:
            known = self._world.watch.error
            self._error = known if known and isinstance(error, PlannerError) else error
            self._queue.clear()
            self._closed = True
            self._changed.notify_all()
        for ticket in tuple(self._going)[1:]:
            with suppress(Exception):  # several tickets in progress are always gloo's
                ticket.work()
