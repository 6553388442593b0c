"""One thread that ends a rank's transfers, one after the other, in the order in which they begin.

Problem. A plan's order is one of transfers that begin, and all ranks have to have the same: gloo
pairs up wrongly what two ranks begin in different orders. The network should not idle between two,
and the processor that computes should have little to do for it.

Method. All transfers of an executor go through one channel. One that gloo can queue (`begin`) is
handed to it by whoever makes it ready, if those before it have been, so that nothing of ours stands
between two transfers; the thread only waits. Others are done in the thread, from begin to end.
Where the ranks have agreed to (`overtaking`), transfers that are ready on all of them go before
those that are not.

Guarantee. Transfers begin in the same order on all ranks; in the order they were asked for, but for
those that overtake. After a failure nothing begins any more.

Complexity. O(1) a transfer; O(what waits) for each vote. Source. Own.
"""

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from planner.errors import PlannerError
from planner.runtime.executors.overtaking import Overtaking
from planner.runtime.measuring.trace import Event, Trace
from planner.runtime.world.world import World

__all__ = ["Channel", "Ticket"]

_LOOK_S = 0.1


@dataclass(slots=True, eq=False)
class Ticket:
    """What is to be done in its turn: a transfer, or something between two.

    Attributes
    ----------
    work : callable
        Does it, or ends what `begin` has begun, and returns once it is done.
    step, batch : int
        Which transfer of the plan it is, or comes before.
    direction : str
        "pull" or "push" where a plan has both.
    kind : str
        As what it is traced; empty: not at all.
    begin : callable, optional
        Puts it into gloo's queue, from any thread.
    firm : bool
        Whether nothing may overtake it.
    ready : bool
        Whether what it needs is there.
    done : bool
        Whether it has ended.
    awaited : bool
        Whether somebody waits for it.
    """

    work: Callable[[], None]
    step: int
    batch: int
    direction: str = ""
    kind: Literal["transfer", "update", ""] = "transfer"
    begin: Callable[[], None] | None = None
    firm: bool = True
    ready: bool = False
    done: bool = False
    awaited: bool = False
    begun_ns: int = 0
    error: Exception | None = None


class Channel:
    """The thread, and what waits for it.

    Attributes
    ----------
    begun : list of Ticket
        What has begun since work was last asked for, in that order, which all ranks share.
    overtaking : Overtaking, optional
        Whether some may overtake others, and how ranks agree on it.
    told : bool
        Whether whoever trains has got an error.
    """

    def __init__(self, world: World, trace: Trace) -> None:
        self.begun: list[Ticket] = []
        self.overtaking: Overtaking | None = None
        self.told = False
        self._world = world
        self._trace = trace
        self._queue: deque[Ticket] = deque()
        self._going: deque[Ticket] = deque()
        self._ready = 0  # of what waits
        self._agreed = 0  # at the head of the queue
        self._changed = threading.Condition()
        self._closed = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="planner-channel", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def submit(self, tickets: Iterable[Ticket]) -> None:
        """Ask for some work, behind all that was asked for before."""
        with self._changed:
            self.begun = []
            for ticket in tickets:
                self._queue.append(ticket)
                self._ready += bool(ticket.ready and ticket.kind)
            self._advance()

    def release(self, ticket: Ticket) -> None:
        """Say that what some work needs is there."""
        with self._changed:
            ticket.ready = True
            self._ready += 1
            now = time.monotonic_ns()
            self._trace.add(Event("ready", ticket.step, ticket.batch, now, now, ticket.direction))
            self._advance()

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
            ticket.awaited = True
            while not ticket.done:
                self.check()
                self._changed.wait(_LOOK_S)

    def check(self) -> None:
        """Raise what has happened, if anything has, to whoever trains."""
        error = self._error or self._world.watch.error
        if error is not None:
            self.told = True
            raise error

    def close(self) -> None:
        """Forget what has not begun, and end the thread.

        Waits for transfers that have begun, which end or fail within the job's time-out: an
        interpreter that ends while a thread is inside gloo aborts.
        """
        atexit.unregister(self.close)
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()
        self._thread.join(timeout=self._world.timeout_s + 1)

    def _advance(self) -> None:
        """Begin what can begin, in order; called with the lock."""
        idle = not self._going
        # Only the head of the queue is looked at: the order is the plan's whatever becomes ready
        # first, unless a vote has changed it.
        while self._queue and self._queue[0].ready and self._may_begin(self._queue[0]):
            self._begin(self._queue.popleft())
        if self.overtaking is not None:
            head = self._queue[0] if self._queue else None
            idles = not self._going or self.overtaking.active
            self.overtaking.held(
                bool(self._ready and head and not head.ready and not head.firm and idles)
            )
        if idle and (self._going or self._voting):
            self._changed.notify_all()

    @property
    def _voting(self) -> bool:
        return self.overtaking is not None and self.overtaking.active

    def _may_begin(self, ticket: Ticket) -> bool:
        if self._closed or (self._voting and ticket.kind and not self._agreed):
            return False
        # What is in gloo's queue stays in order; all else waits for its turn.
        return not self._going or (ticket.begin is not None and self._going[-1].begin is not None)

    def _begin(self, ticket: Ticket) -> None:
        if ticket.begin is not None:
            try:
                ticket.begin()
            except Exception as error:  # the thread tells it to all
                ticket.error = error
        ticket.begun_ns = time.monotonic_ns()
        self._going.append(ticket)
        if ticket.kind:
            self._agreed = max(self._agreed - 1, 0)
            self._ready -= 1
            self.begun.append(ticket)

    def _next(self) -> Ticket | None:
        """Return the oldest work that has begun; None to end."""
        with self._changed:
            while not self._going:
                if self._closed:
                    return None
                if self._voting and self._ready:
                    self._vote()
                else:
                    self._changed.wait()
            return self._going[0]

    def _vote(self) -> None:
        """Put in front what is ready on all ranks; called with the lock, in the thread."""
        overtaking = self.overtaking
        assert overtaking is not None
        step = self._queue[0].step
        waiting = [ticket for ticket in self._queue if ticket.step == step and ticket.kind]
        ready = tuple(ticket.ready for ticket in waiting)
        if ready == overtaking.refused and not all(ready):
            self._changed.wait(overtaking.pause_s)
            overtaking.refused = ()
            return
        places = [0]
        if len(waiting) > 1:
            self._changed.release()
            try:
                with self._world.transferring(step, waiting[0].batch):
                    places = overtaking.vote(ready, [ticket.firm for ticket in waiting])
            finally:
                self._changed.acquire()
        if not self._closed:
            chosen = [waiting[place] for place in places]
            for ticket in chosen:
                self._queue.remove(ticket)
            self._queue.extendleft(reversed(chosen))
            self._agreed = len(chosen)
            self._advance()

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
                    if ticket.kind:
                        named = ticket.step, ticket.batch, begun, ended, ticket.direction
                        self._trace.add(Event(ticket.kind, *named))
            except Exception as error:  # whoever waits gets it
                self._fail(error)
                return
            # Under the lock, after the work: whoever sees `done` sees what the transfer wrote.
            with self._changed:
                self._going.popleft()
                ticket.done = True
                self._advance()
                if ticket.awaited:
                    self._changed.notify_all()
            del ticket  # and with it the gradients that it sent

    def _fail(self, error: Exception) -> None:
        """Let whoever waits have an error, and wait for the rest of gloo's queue, which fails."""
        with self._changed:
            known = self._world.watch.error
            self._error = known if known and isinstance(error, PlannerError) else error
            self._queue.clear()
            self._closed = True
            self._changed.notify_all()
        for ticket in tuple(self._going)[1:]:
            with suppress(Exception):  # all are in that queue, or there is but one
                ticket.work()
