"""Executors that follow a plan pass, and those that do something else are caught."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from planner.programs import Batch, GradientProgram
from planner.testing import check_executor
from planner.testing.executors import ELEMENT_BYTES, Gradient, Run

Gradients = dict[str, Gradient]


def send(batch: Batch, gradients: Gradients, all_reduce: Callable[[Gradient], None]) -> None:
    parts = []
    for piece in batch.pieces:
        stop = None if piece.stop is None else piece.stop // ELEMENT_BYTES
        parts.append(gradients[piece.parameter][piece.start // ELEMENT_BYTES : stop])
    message = np.concatenate(parts)
    all_reduce(message)
    for part in parts:
        part[:], message = message[: len(part)], message[len(part) :]


def follow(
    program: GradientProgram,
    gradients: Gradients,
    ready: Iterator[str],
    all_reduce: Callable[[Gradient], None],
) -> None:
    """Send each batch once all before it are sent and all that it holds is ready."""
    there = set[str]()
    waiting = list(program.batches)
    for name in ready:
        there.add(name)
        while waiting and {piece.parameter for piece in waiting[0].pieces} <= there:
            send(waiting.pop(0), gradients, all_reduce)


def together(program: GradientProgram) -> GradientProgram:
    return GradientProgram((Batch(tuple(it for batch in program.batches for it in batch.pieces)),))


def inside_out(program: GradientProgram) -> GradientProgram:
    return GradientProgram(tuple(Batch(batch.pieces[::-1]) for batch in program.batches))


def test_an_executor_that_follows_the_plan_passes() -> None:
    check_executor(follow)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda program, own, _, sums: follow(program, own, iter(own), sums), "not ready"),
        (
            lambda program, *given: follow(GradientProgram(program.batches[::-1]), *given),
            "something else",
        ),
        (lambda program, *given: follow(inside_out(program), *given), "something else"),
        (lambda program, *given: follow(together(program), *given), "1 transfers, not"),
        (
            lambda program, own, ready, sums: follow(
                program, {name: own[name].copy() for name in ready}, iter(own), sums
            ),
            "is not the sum",
        ),
    ],
    ids=["at once", "backwards", "pieces backwards", "all together", "forgets the sums"],
)
def test_one_that_does_something_else_is_caught(run: Run, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_executor(run)
