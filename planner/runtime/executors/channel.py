"""One thread that runs a rank's transfers, one after the other, in the order they were asked for.

A plan's order holds only if one transfer is outstanding at a time: gloo runs two collectives of a
group at once, and pairs them up wrongly if two threads issue them. So all transfers of an executor
go through one channel, each when it is ready and those before it have ended.
"""

import atexit
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from planner.errors import PlannerError
from planner.runtime.measuring.trace import Trace
from planner.runtime.world.world import World

__all__ = ["Channel", "Ticket"]

_LOOK_S = 0.1


@dataclass(slots=True, eq=False)
class Ticket:
    """What is to be done in its turn: a transfer, or an update between two.

    Attributes
    ----------
    work : callable
        Does it, and returns once it is done.
    step, batch : int
        Which transfer of the plan it is, or comes before.
    direction : str
        "pull" or "push" where a plan has both.
    kind : str
        As what it is traced.
    ready : bool
        Whether what it needs is there.
    done : bool
        Whether it has ended.
    """

    work: Callable[[], None]
    step: int
    batch: int
    direction: str = ""
    kind: Literal["transfer", "update"] = "transfer"
    ready: bool = False
    done: bool = False


class Channel:
    """The thread, and what waits for it."""

    def __init__(self, world: World, trace: Trace) -> None:
        self._world = world
        self._trace = trace
        self._queue: deque[Ticket] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="planner-channel", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def submit(self, tickets: Iterable[Ticket]) -> None:
        """Ask for some work, behind all that was asked for before."""
        with self._changed:
            self._queue.extend(tickets)
            self._changed.notify_all()

    def release(self, ticket: Ticket) -> None:
        """Say that what some work needs is there."""
        with self._changed:
            ticket.ready = True
            if self._queue and self._queue[0] is ticket:  # else nobody can do anything yet
                self._changed.notify_all()

    def wait(self, ticket: Ticket) -> None:
        """Return once some work has ended.

        Raises
        ------
        CommunicationError
            If it failed, or another rank has stopped.
        """
        if ticket.done:  # without the lock: it only ever goes from False to True
            return
        with self._trace.span("wait", ticket.step, ticket.batch, ticket.direction), self._changed:
            while not ticket.done:
                if self._error is not None:
                    raise self._error
                self._world.watch.check()
                self._changed.wait(_LOOK_S)

    def close(self) -> None:
        """Forget what has not begun, and end the thread.

        Waits for a transfer that has begun, which ends or fails within the job's time-out: an
        interpreter that ends while a thread is inside gloo aborts.
        """
        atexit.unregister(self.close)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout=self._world.timeout_s + 1)

    def _next(self) -> Ticket | None:
        # Only the head of the queue is looked at, so the order is the plan's whatever becomes ready
        # first; popped under the lock, so that no other thread sees a ticket half taken.
        with self._changed:
            while not self._closed:
                if self._queue and self._queue[0].ready:
                    return self._queue.popleft()
                self._changed.wait()
        return None

    def _run(self) -> None:
        while (ticket := self._next()) is not None:
            try:
                with (
                    self._trace.span(ticket.kind, ticket.step, ticket.batch, ticket.direction),
                    self._world.transferring(ticket.step, ticket.batch),
                ):
                    ticket.work()
            except Exception as error:  # noqa: BLE001 - whoever waits gets it
                with self._changed:
                    known = self._world.watch.error
                    self._error = known if known and isinstance(error, PlannerError) else error
                    self._changed.notify_all()
                return
            # Under the lock, after the work: whoever sees `done` sees what the transfer wrote.
            with self._changed:
                ticket.done = True
                self._changed.notify_all()
            del ticket  # and with it the gradients that it sent
