"""Track the gradients of a step, and the batches they complete.

Method: Each gradient is recorded with its version number, which every change in place increments.
Each batch counts its missing gradients.
Guarantee: A batch becomes complete once per step. `check` stops a step whose gradients are missing,
come twice, or have changed since they were sent.
Complexity: O(1) per gradient and batch that carries part of it.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

import torch
from torch import Tensor, nn

Taken = list[tuple[Tensor, int] | None]
"""Gradients with their versions, by parameter number; None until a gradient is complete."""


class Gradients:
    """The gradients of one step after the other.

    `batches` lists the parameters of each batch, which together are all of `names`. `stop` ends the
    step with a reason and the batch; `instead` completes the message about a changed gradient.
    """

    def __init__(
        self,
        batches: Sequence[Iterable[nn.Parameter]],
        names: Mapping[nn.Parameter, str],
        stop: Callable[[str, int], NoReturn],
        instead: str,
    ) -> None:
        self._batches = tuple(tuple(dict.fromkeys(batch)) for batch in batches)
        self._names = names
        self._stop = stop
        self._instead = instead
        self.index = {parameter: number for number, parameter in enumerate(names)}
        """The number of each parameter, used as key since hashing tensors is slow."""
        self.parameters = tuple(names)
        numbers: list[list[int]] = [[] for _ in names]
        for number, batch in enumerate(self._batches):
            for parameter in batch:
                numbers[self.index[parameter]].append(number)
        self.batches_of = tuple(map(tuple, numbers))
        """By parameter number: the batches with part of its gradient, in transfer order."""
        self.taken: Taken = []
        """By parameter number: this step's gradient with its version, once complete."""
        self._missing: list[int] = []
        self.begin()

    def begin(self) -> None:
        """Begin a step. The `taken` lists of earlier steps stay unchanged."""
        self.taken = [None] * len(self.parameters)
        self._missing = [len(batch) for batch in self._batches]

    @property
    def begun(self) -> bool:
        """Whether any gradient of this step is complete."""
        return any(taken is not None for taken in self.taken)

    def take(self, parameter: nn.Parameter) -> list[int]:
        """Record a parameter's complete gradient; return the batches it completes."""
        number = self.index[parameter]
        gradient = parameter.grad
        assert gradient is not None
        if gradient.is_sparse or self.taken[number] is not None:
            self._refuse(number, gradient)
        self.taken[number] = gradient, version(gradient)
        complete = []
        for batch in self.batches_of[number]:
            self._missing[batch] -= 1
            if not self._missing[batch]:
                complete.append(batch)
        return complete

    def check(self) -> None:
        """Check that all gradients are complete and unchanged."""
        for number, missing in enumerate(self._missing):
            if missing:
                absent = [
                    parameter
                    for parameter in self._batches[number]
                    if not self.taken[self.index[parameter]]
                ]
                self._stop(
                    f"{self._names[absent[0]]} got no gradient (does the loss depend on it?), so "
                    "its batch cannot leave",
                    number,
                )
        for number, (parameter, taken) in enumerate(zip(self.parameters, self.taken, strict=True)):
            if not taken or parameter.grad is not taken[0] or version(taken[0]) != taken[1]:
                self._stop(
                    f"the gradient of {self._names[parameter]} was changed after it was sent: "
                    f"{self._instead}",
                    self.batches_of[number][0],
                )

    def forget(self) -> None:
        """Set all gradients to None."""
        for parameter in self.parameters:
            parameter.grad = None

    def _refuse(self, number: int, gradient: Tensor) -> NoReturn:
        name, batch = self._names[self.parameters[number]], self.batches_of[number][0]
        if gradient.is_sparse:
            self._stop(
                f"the gradient of {name} is sparse, and only dense ones are summed up", batch
            )
        self._stop(
            f"a second gradient for {name} in one step: step() ends each backward pass, but "
            "for those inside no_sync()",
            batch,
        )


def version(tensor: Tensor) -> int:
    """Return the version number of a tensor, which every change in place increments."""
    return tensor._version  # documented in torch's notes on autograd


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
