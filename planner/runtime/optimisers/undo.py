"""Takes back the last step that has begun to change parameters.

Problem. Parameters are updated batch by batch. If a transfer fails in the middle, some are a step
older than others, and one rank may have ended a step that another has not.

Method. Before a parameter is updated its value, and what the optimiser remembers of it, are copied.
The copies are kept until the next step's first update.

Guarantee. After `back` parameters and their state are bit by bit what they were before the step.
That is enough for ranks to meet: none begins the updates of a step before all have ended those of
the step before.

Complexity. One copy of the parameters and of the optimiser's state, and their memory. Source. Own.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.errors import PlannerError
from planner.runtime.optimisers.some_parameters import copied

__all__ = ["Undo"]


class Undo:
    """What the last step that was begun has changed.

    Parameters
    ----------
    optimizer : Optimizer
        What updates the parameters.
    parameters : sequence of Parameter
        Here each goes by its number.
    """

    def __init__(self, optimizer: Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self._optimizer = optimizer
        self._parameters = parameters
        self._before: dict[int, tuple[Tensor, dict[str, Any] | None]] = {}
        self.step: int | None = None
        """The step that `back` takes back; None before the first."""

    def begin(self, step: int, numbers: Iterable[int]) -> None:
        """Remember some parameters, which a step is about to change."""
        if step != self.step:
            self.step, self._before = step, {}
        for number in numbers:
            parameter = self._parameters[number]
            state = self._optimizer.state.get(parameter)
            kept = None if state is None else {key: copied(state[key]) for key in state}
            self._before.setdefault(number, (parameter.detach().clone(), kept))

    def to(self, steps: int, complete: int) -> None:
        """Go back to where so many steps were complete; so many more may be, or half of one.

        Raises
        ------
        PlannerError
            If that is more than one step back.
        """
        if self.step == steps:
            self.back()
        elif steps != complete:
            raise PlannerError(f"cannot go back to step {steps}: {complete} are complete")

    def back(self) -> None:
        """Take the step back, as far as it has come."""
        with torch.no_grad():
            for number, (value, state) in self._before.items():
                parameter = self._parameters[number]
                parameter.copy_(value)
                if state is None:
                    self._optimizer.state.pop(parameter, None)
                else:
                    self._optimizer.state[parameter] = state
        self.step, self._before = None, {}
