"""Which gradients of a step are complete, and which batches can leave with them.

Problem. A batch may be sent once the last gradient it carries is complete; a gradient that is
missing, that comes twice, or that changes after it may have been sent must not go unnoticed.

Method. Each gradient is noted together with its version number, which every change in place
raises; each batch counts the gradients that it still waits for.

Guarantee. A batch is complete exactly once a step. `check` lets no step end in which the gradients
are not those that were sent.

Complexity. O(1) for each gradient and batch that carries some of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from torch import Tensor, nn

__all__ = ["Gradients", "version"]


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
        found: dict[nn.Parameter, list[int]] = {one: [] for one in names}
        for number, batch in enumerate(self._batches):
            for parameter in batch:
                found[parameter].append(number)
        self.batches_of = {one: tuple(numbers) for one, numbers in found.items()}
        """The batches that carry some of each parameter's gradient, in transfer order."""
        self.taken: dict[nn.Parameter, tuple[Tensor, int]] = {}
        """The complete gradients of this step, each with its version number."""
        self._missing: list[int] = []
        self.begin()

    def begin(self) -> None:
        """Begin a step: nothing is complete. Earlier steps' `taken` stays as it is."""
        self.taken = {}
        self._missing = [len(batch) for batch in self._batches]

    def take(self, parameter: nn.Parameter) -> tuple[int, ...]:
        """Note that a parameter's gradient is complete; return the batches that now are."""
        gradient = parameter.grad
        assert gradient is not None
        name, numbers = self._names[parameter], self.batches_of[parameter]
        if gradient.is_sparse:
            self._stop(
                f"the gradient of {name} is sparse, and only dense ones are summed up", numbers[0]
            )
        if parameter in self.taken:
            self._stop(
                f"a second gradient for {name} in one step: step() ends each backward pass, but "
                "for those inside no_sync()",
                numbers[0],
            )
        self.taken[parameter] = gradient, version(gradient)
        for number in numbers:
            self._missing[number] -= 1
        return tuple(number for number in numbers if not self._missing[number])

    def check(self) -> None:
        """Check that all gradients came, and are still those that were taken."""
        for number, missing in enumerate(self._missing):
            if missing:
                absent = [one for one in self._batches[number] if one not in self.taken]
                self._stop(
                    f"{self._names[absent[0]]} got no gradient (does the loss depend on it?), so "
                    "its batch cannot leave",
                    number,
                )
        for parameter, (gradient, before) in self.taken.items():
            if parameter.grad is not gradient or version(gradient) != before:
                self._stop(
                    f"the gradient of {self._names[parameter]} was changed after it was sent: "
                    f"{self._instead}",
                    self.batches_of[parameter][0],
                )

    def forget(self) -> None:
        """Take the gradients away from their parameters."""
        for parameter in self.taken:
            parameter.grad = None


def version(tensor: Tensor) -> int:
    """Return a number that changes with every change in place."""
    return tensor._version  # noqa: SLF001 - documented in torch's notes on autograd
