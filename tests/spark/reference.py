"""A small training job, and what plain training makes of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.runtime.spark.training import sgd

ELEMENTS = 1003
PARTITIONS = 4
UPDATE = sgd(0.1, momentum=0.9)


def data() -> list[list[NDArray[Any]]]:
    randomly = np.random.default_rng(23)
    return [[randomly.normal(size=ELEMENTS) for _ in range(3)] for _ in range(PARTITIONS)]


def gradient(
    weights: NDArray[Any], rows: Sequence[Any], iteration: int, partition: int
) -> NDArray[Any]:
    """Return a gradient that depends on all it is called with."""
    mean = np.mean(np.array(rows), axis=0)
    pulled: NDArray[Any] = np.tanh(weights - mean) + 0.01 * iteration * (partition + 1)
    return pulled


def plain(iterations: int) -> NDArray[Any]:
    """Return the weights after so many iterations of one process."""
    weights, state = np.zeros(ELEMENTS), np.zeros((1, ELEMENTS))
    for iteration in range(iterations):
        gradients = [gradient(weights, rows, iteration, place) for place, rows in enumerate(data())]
        UPDATE(weights, np.mean(gradients, axis=0), state)
    return weights


class Once:
    """A gradient that does something else once, on whichever machine comes first."""

    def __init__(self, folder: Path, name: str, iteration: int) -> None:
        self.flag, self.name, self.iteration = folder / name, name, iteration

    def __call__(
        self, weights: NDArray[Any], rows: Sequence[Any], iteration: int, partition: int
    ) -> NDArray[Any]:
        import os
        import signal

        if iteration == self.iteration and partition == 1:
            try:
                self.flag.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                if self.name.startswith("killed"):
                    os.kill(executor(), signal.SIGKILL)
                raise RuntimeError(f"once {self.name}")
        return gradient(weights, rows, iteration, partition)


def executor() -> int:
    """Return the process of this task's executor: the Java above Python's processes."""
    import os

    process = os.getpid()
    while "java" not in Path(f"/proc/{process}/comm").read_text(encoding="utf-8"):
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
        process = int(status.rpartition(")")[2].split()[1])
    return process


def never(
    weights: NDArray[Any], rows: Sequence[Any], iteration: int, partition: int
) -> NDArray[Any]:
    raise ZeroDivisionError("no gradient of this data")
