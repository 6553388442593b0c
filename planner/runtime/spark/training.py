"""What an iteration of training computes, and how far it has come, whoever runs it.

All weights form one vector, as in BigDL, and so do the gradients of each partition; what is applied
is their mean over all partitions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidInputError

__all__ = ["Reached", "Training", "Update", "Vector", "sgd"]

Vector = NDArray[Any]
Update = Callable[[Vector, Vector, Vector], None]
Gradient = Callable[[Vector, Sequence[Any], int, int], Vector]


@dataclass(frozen=True, slots=True)
class Training:
    """What every iteration does. Functions go to the workers, by Spark's own pickling.

    Attributes
    ----------
    gradient : callable
        Called with the weights, the rows of a partition, the iteration from 0, and the number of
        the partition; returns its gradient, as long as the weights.
    update : callable
        Called with some of the weights, the mean of their gradients, and the same columns of the
        state; changes weights and state in place, each element by itself.
    state_rows : int
        Rows of the state, such as 1 for momentum; they start as zeros.
    """

    gradient: Gradient
    update: Update
    state_rows: int = 0


@dataclass(frozen=True, slots=True)
class Reached:
    """How far training has come: all that is needed to go on.

    Attributes
    ----------
    iteration : int
        Iterations done.
    weights : array
        The weights after them, of float32 or float64.
    state : array
        The optimiser's state, of shape (rows, weights).
    """

    iteration: int
    weights: Vector
    state: Vector

    @classmethod
    def start(cls, weights: Vector, state_rows: int = 0) -> "Reached":
        """Return the place where training starts.

        Raises
        ------
        InvalidInputError
            If the weights are no vector of floats.
        """
        flat = np.array(weights)
        if flat.ndim != 1 or not flat.size or flat.dtype not in (np.float32, np.float64):
            raise InvalidInputError(
                "weights",
                f"expected a vector of float32 or float64, got {flat.dtype} of shape {flat.shape}",
            )
        return cls(0, flat, np.zeros((state_rows, flat.size), flat.dtype))


class sgd:  # noqa: N801 - called like the function it is, and pickled
    """Stochastic gradient descent, as an `update`.

    Parameters
    ----------
    rate : float
        The learning rate.
    momentum : float
        0, or with a row of state how much of the last step stays.
    """

    def __init__(self, rate: float, momentum: float = 0.0) -> None:
        self.rate, self.momentum = rate, momentum

    def __call__(self, weights: Vector, gradient: Vector, state: Vector) -> None:
        """Change some of the weights."""
        step = gradient
        if self.momentum:
            state[0] *= self.momentum
            state[0] += gradient
            step = state[0]
        weights -= (self.rate * step).astype(weights.dtype)


def checked(gradient: Vector, weights: Vector) -> Vector:
    """Return a gradient that is as long as the weights, and of their type.

    Raises
    ------
    InvalidInputError
        If it is not.
    """
    flat: Vector = np.asarray(gradient)
    if flat.shape != weights.shape:
        raise InvalidInputError(
            "gradient", f"expected as many elements as weights ({weights.size}), got {flat.shape}"
        )
    return flat.astype(weights.dtype, copy=False)
