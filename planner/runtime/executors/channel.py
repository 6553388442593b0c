"""The channel of a rank's transfers: one thread and a queue with the same order on all ranks.

Problem: All ranks must begin transfers in the same order, since gloo matches them by order. The
network should not idle between two transfers, nor the computing processor do much work for them.
Method: Transfers that gloo can queue (`begin`) are queued by the thread that makes them ready; the
channel's thread only waits for them. Others run in the channel's thread. Where the ranks have
agreed (`overtaking`), transfers that are ready on all ranks overtake others.
Guarantee: Transfers begin in the same order on all ranks: in the order of submission, except for
those that overtake. After a failure no transfer begins.
Complexity: O(1) per transfer; O(waiting transfers) per vote.
"""

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from planner.model.errors import PlannerError
from planner.runtime.measuring.trace import Event, Trace
from planner.runtime.world.world import World

_LOOK_S = 0.1


# ---
# Voting of ranks on which ready transfers overtake others that are not ready.
#
# Problem: In a strict order a ready transfer waits behind one that is not, and the network idles.
# All ranks must send in one order, readiness differs between them, and a vote costs a message.
# Method: In one of every `EVERY` steps ranks sum the time their networks idled for this reason.
# Above a tenth of the time they vote until the next count: a rank whose network idles sums a row of
# ones for its ready transfers, and those ready on all ranks go next, in the plan's order. If there
# are none, a rank asks again when another transfer becomes ready, or after a pause. Guarantee: The
# choice is the same on all ranks. Ranks wait forever only where a strict order would. Complexity:
# One number per waiting transfer and vote; at most one vote per idle period.

EVERY = 8
"""Steps between two counts."""
_SHARE = 0.1
"""Least share of lost time for voting: votes cost messages, and give up the plan's order."""


class Overtaking:
    """State of the voting on this rank.

    `add` replaces a tensor by the sum over all ranks, in the order of transfers. With `always`
    ranks vote in all steps, else after a count that says so.
    """

    pause_s = 0.01
    """Pause before the same vote is repeated."""

    def __init__(self, add: Callable[[Tensor], object], ranks: int, *, always: bool) -> None:
        self.active = always
        self.always = always
        self.refused: Sequence[bool] = ()
        """Readiness of this rank in the last vote without a result."""
        self._add = add
        self._ranks = ranks
        self._held_ns = 0
        self._since: int | None = None
        self._start = time.monotonic_ns()

    def held(self, now: bool) -> None:
        """Record whether a ready transfer is delayed by one that is not ready."""
        if now != (self._since is not None):
            if self._since is not None:
                self._held_ns += time.monotonic_ns() - self._since
            self._since = time.monotonic_ns() if now else None

    def count(self) -> None:
        """Decide with all ranks whether to vote from now on."""
        now = time.monotonic_ns()
        lost = torch.tensor([self._held_ns, now - self._start])
        self._held_ns, self._start = 0, now
        self._add(lost)
        held, whole = lost.tolist()
        self.active = held > _SHARE * whole

    def vote(self, ready: Sequence[bool], firm: Sequence[bool]) -> list[int]:
        """Return the positions of the waiting transfers that go next; may be none.

        Firm transfers may not be overtaken. `ready` and `firm` are in the plan's order.
        """
        rows = torch.tensor(ready, dtype=torch.int32)
        self._add(rows)
        chosen = []
        for place, count in enumerate(rows.tolist()):
            if count == self._ranks:
                chosen.append(place)
            elif firm[place]:
                break
        self.refused = () if chosen else tuple(ready)
        return chosen


@dataclass(slots=True, eq=False)
class Ticket:
    """Work in the channel's queue: a transfer, or a step between two transfers."""

    work: Callable[[], object]  # does the work, or completes what `begin` has begun
    step: int
    batch: int
    direction: str = ""  # "pull" or "push" where a plan has both
    kind: Literal["transfer", "update", ""] = "transfer"  # of its trace event; empty for none
    begin: Callable[[], None] | None = None  # puts the transfer into gloo's queue, in any thread
    firm: bool = True  # no other transfer may overtake it
    ready: bool = False
    done: bool = False
    awaited: bool = False
    begun_ns: int = 0
    error: Exception | None = None


class Channel:
    """The thread and its queue.

    `begun` lists the tickets begun since the last `submit`, in the order all ranks share. `told`
    says whether the training loop has received an error.
    """

    def __init__(self, world: World, trace: Trace) -> None:
        self.begun: list[Ticket] = []
        self.overtaking: Overtaking | None = None
        self.told = False
        self._world = world
        self._trace = trace
        self._queue: deque[Ticket] = deque()
        self._going: deque[Ticket] = deque()
        self._ready = 0  # ready transfers in the queue
        self._agreed = 0  # transfers at the head of the queue that a vote has chosen
        self._changed = threading.Condition()
        self._closed = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="planner-channel", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def submit(self, tickets: Iterable[Ticket]) -> None:
        """Queue tickets behind all earlier ones."""
        with self._changed:
            self.begun = []
            for ticket in tickets:
                self._queue.append(ticket)
                self._ready += bool(ticket.ready and ticket.kind)
            self._advance()

    def release(self, ticket: Ticket) -> None:
        """Mark a ticket as ready."""
        with self._changed:
            ticket.ready = True
            self._ready += 1
            now = time.monotonic_ns()
            self._trace.add(Event("ready", ticket.step, ticket.batch, now, now, ticket.direction))
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
            self.told = True
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
        # Only the head of the queue may begin, so that the order of the plan (or of a vote) holds
        # whatever becomes ready first.
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
        # Transfers in gloo's queue keep their order; any other waits until the channel is free.
        return not self._going or (ticket.begin is not None and self._going[-1].begin is not None)

    def _begin(self, ticket: Ticket) -> None:
        if ticket.begin is not None:
            try:
                ticket.begin()
            except Exception as error:  # the thread reports it to all ranks
                ticket.error = error
        ticket.begun_ns = time.monotonic_ns()
        self._going.append(ticket)
        if ticket.kind:
            self._agreed = max(self._agreed - 1, 0)
            self._ready -= 1
            self.begun.append(ticket)

    def _next(self) -> Ticket | None:
        """Return the oldest ticket that has begun; None at the end."""
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
        """Move the transfers that are ready on all ranks to the front; called with the lock."""
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
