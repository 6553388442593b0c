"""Voting of ranks on which ready transfers overtake others that are not ready.

Problem: In a strict order a ready transfer waits behind one that is not, and the network idles. All
ranks must send in one order, readiness differs between them, and a vote costs a message.
Method: In one of every `EVERY` steps ranks sum the time their networks idled for this reason. Above
a tenth of the time they vote until the next count: a rank whose network idles sums a row of ones
for its ready transfers, and those ready on all ranks go next, in the plan's order. If there are
none, a rank asks again when another transfer becomes ready, or after a pause.
Guarantee: The choice is the same on all ranks. Ranks wait forever only where a strict order would.
Complexity: One number per waiting transfer and vote; at most one vote per idle period.
"""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

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
