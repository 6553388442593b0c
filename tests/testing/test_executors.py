"""Executors that follow a plan pass, and those that do something else are caught."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from planner.programs import Batch, GradientProgram
from planner.testing import check_executor
from planner.testing.executors import ELEMENT_BYTES, Gradient, Run

AllReduce = Callable[[Gradient], None]


def views(batch: Batch, gradients: dict[str, Gradient]) -> list[Gradient]:
    """Return what a batch holds, in the order of the message."""
    found = []
    for piece in batch.pieces:
        stop = None if piece.stop is None else piece.stop // ELEMENT_BYTES
        found.append(gradients[piece.parameter][piece.start // ELEMENT_BYTES : stop])
    return found


def send(batch: Batch, gradients: dict[str, Gradient], all_reduce: AllReduce) -> None:
    parts = views(batch, gradients)
    message = np.concatenate(parts)
    all_reduce(message)
    for part in parts:
        part[:], message = message[: len(part)], message[len(part) :]


def follow(
    program: GradientProgram,
    gradients: dict[str, Gradient],
    ready: Iterator[str],
    all_reduce: AllReduce,
) -> None:
    """Send each batch once all before it are sent and all that it holds is ready."""
    there = set[str]()
    waiting = list(program.batches)
    for name in ready:
        there.add(name)
        while waiting and {piece.parameter for piece in waiting[0].pieces} <= there:
            send(waiting.pop(0), gradients, all_reduce)


def at_once(
    program: GradientProgram,
    gradients: dict[str, Gradient],
    ready: Iterator[str],
    all_reduce: AllReduce,
) -> None:
    for batch in program.batches:
        send(batch, gradients, all_reduce)
    list(ready)


def backwards(
    program: GradientProgram,
    gradients: dict[str, Gradient],
    ready: Iterator[str],
    all_reduce: AllReduce,
) -> None:
    follow(GradientProgram(program.batches[::-1]), gradients, ready, all_reduce)


def all_together(
    program: GradientProgram,
    gradients: dict[str, Gradient],
    ready: Iterator[str],
    all_reduce: AllReduce,
) -> None:
    pieces = tuple(piece for batch in program.batches for piece in batch.pieces)
    follow(GradientProgram((Batch(pieces),)), gradients, ready, all_reduce)


def forgets_the_sums(
    program: GradientProgram,
    gradients: dict[str, Gradient],
    ready: Iterator[str],
    all_reduce: AllReduce,
) -> None:
    list(ready)
    own = {name: values.copy() for name, values in gradients.items()}
    follow(program, own, iter(own), all_reduce)


def test_an_executor_that_follows_the_plan_passes() -> None:
    check_executor(follow)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (at_once, "not ready"),
        (backwards, "something else"),
        (all_together, "1 transfers, not"),
        (forgets_the_sums, "is not the sum"),
    ],
)
def test_one_that_does_something_else_is_caught(run: Run, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_executor(run)
