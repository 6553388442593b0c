"""Which gradients of a step are complete, and which batches can leave with them.

Problem. A batch may be sent once the last gradient it carries is complete; a gradient that is
missing, that comes twice, or that changes after it may have been sent must not go unnoticed.

Method. Each gradient is noted together with its version number, which every change in place
raises; each batch counts the gradients that it still waits for.

Guarantee. A batch is complete exactly once a step. `check` lets no step end in which the gradients
are not those that were sent.

Complexity. O(1) for each gradient and batch that carries some of it. Source. Own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from torch import Tensor, nn

__all__ = ["Gradients", "Taken", "version"]

Taken = list[tuple[Tensor, int] | None]
"""Gradients by number of their parameter, each with its version; None where it is not there yet."""


class Gradients:
    """The gradients of one step after the other.

    Parameters
    ----------
    batches : sequence of iterable of Parameter
        Whose gradients each batch carries; together all in `names`.
    names : Mapping
        The names of the parameters.
    stop : callable
        Ends the step with a reason, and the batch that it concerns.
    instead : str
        What else to do than to change a gradient that was sent.
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
        """The number of each parameter: calls of a tensor's hash, which is Python's, add up."""
        self.parameters = tuple(names)
        numbers: list[list[int]] = [[] for _ in names]
        for number, batch in enumerate(self._batches):
            for parameter in batch:
                numbers[self.index[parameter]].append(number)
        self.batches_of = tuple(map(tuple, numbers))
        """By number of the parameter: the batches with some of its gradient, in transfer order."""
        self.taken: Taken = []
        """By number of the parameter: this step's gradient with its version, once complete."""
        self._missing: list[int] = []
        self.begin()

    def begin(self) -> None:
        """Begin a step: nothing is complete. Earlier steps' `taken` stays as it is."""
        self.taken = [None] * len(self.parameters)
        self._missing = [len(batch) for batch in self._batches]

    @property
    def begun(self) -> bool:
        """Whether any gradient of this step is complete."""
        return any(taken is not None for taken in self.taken)

    def take(self, parameter: nn.Parameter) -> list[int]:
        """Note that a parameter's gradient is complete; return the batches that now are."""
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
        """Check that all gradients came, and are still those that were taken."""
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
        """Take the gradients away from their parameters."""
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
    """Return a number that changes with every change in place."""
    return tensor._version  # documented in torch's notes on autograd
