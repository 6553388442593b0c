"""Which transfers may go before others that are not ready, and how ranks agree on that.

Problem. In a strict order a transfer that is ready waits behind one that is not, and the network
idles. But all ranks have to send in one order, what is ready differs between them, and to ask takes
a message.

Method. Asked is only where it pays: each rank measures how long its network idled with something
ready behind a head that was not, and in one step of every `_EVERY` ranks add that up. If it is more
than a tenth of the time, they vote in the steps up to the next count. Whoever has something ready
while its network idles adds a row of ones for what is; what all have ready goes next, in the order
of the plan. If there is nothing, whoever gets something new asks again, all others after a pause.

Guarantee. What is chosen is the same on all ranks, and ready on each of them. Nobody waits for ever
but for a rank whose gradients never come, as in a strict order. Sums do not depend on the order.

Complexity. One number a waiting transfer and vote; a vote each time the network idles, or none.
Source. Own.
"""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["EVERY", "Overtaking"]

EVERY = 8
"""Steps from one count to the next."""
_SHARE = 0.1
"""The share of the time that has to be lost: votes cost messages, and the plan's order."""


class Overtaking:
    """What the ranks of a job have agreed on.

    Parameters
    ----------
    add : callable
        Replaces a tensor by the sum of all ranks', in the order of transfers.
    ranks : int
        How many there are.
    always : bool
        Whether to vote in all steps; else in those that follow a count that says so.
    """

    pause_s = 0.01
    """How long to wait for something new before asking the same again."""

    def __init__(self, add: Callable[[Tensor], object], ranks: int, *, always: bool) -> None:
        self.active = always
        self.always = always
        self.refused: Sequence[bool] = ()
        """What this rank had ready when nothing was ready on all ranks."""
        self._add = add
        self._ranks = ranks
        self._held_ns = 0
        self._since: int | None = None
        self._start = time.monotonic_ns()

    def held(self, now: bool) -> None:
        """Say whether something ready waits for something that is not."""
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
        """Return which of the waiting transfers go next; none if no rank has what all have.

        Parameters
        ----------
        ready, firm : sequence of bool
            Of what waits, in the order of the plan: whether it is ready here, and whether nothing
            may overtake it.
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
