"""A plan's transfers with the bytes they move: what an executor needs.

Layers come in the order in which back-propagation finishes them, the last one first, each cut into
pieces of its own, so that transfers can start while other gradients are still computed. With R
rounds a layer is cut into R parts first, and each part into pieces. What has no bytes is left out.

Complexity. O(1) a transfer and part; where pieces start is worked out for many at once.
Source. Own.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from planner.bml.plan import Plan, Transfer
from planner.bml.problem import Problem
from planner.deadline import NEVER, Deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Listed", "listed", "parts_of"]

_BATCH = 1024
"""Transfers worked out at once."""

_Batch: TypeAlias = "tuple[list[Transfer], NDArray[np.int64]]"


class Listed(NamedTuple):
    """One transfer of one part of one layer.

    Attributes
    ----------
    transfer : Transfer
        Who sends which pieces to whom; it takes place `part` steps later than it says.
    layer, part : int
        Which part of which layer; 0 where there is only one.
    offset_bytes, length_bytes : int
        Where the pieces are in the whole gradient, layer 0 first.
    """

    transfer: Transfer
    layer: int
    part: int
    offset_bytes: int
    length_bytes: int


def parts_of(problem: Problem, rounds: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield layer, part, first byte and elements of every part that has some."""
    first = problem.size_bytes
    for layer in reversed(range(len(problem.chunks))):
        first -= problem.chunks[layer]
        quotient, rest = divmod(problem.chunks[layer] // problem.element_bytes, rounds)
        start = first
        for part in range(rounds):
            elements = quotient + (part < rest)
            if elements:
                yield layer, part, start, elements
            start += elements * problem.element_bytes


def listed(
    problem: Problem, plan: Plan, server: int, deadline: Deadline = NEVER
) -> Iterator[Listed]:
    """Yield what a server sends, layer after layer, part after part, step after step.

    Raises
    ------
    TimeUpError
        At the deadline.
    """
    batches: Iterable[_Batch] = _batches(plan, server, deadline)
    if len(problem.chunks) * plan.rounds > 1:  # the same transfers for each part
        batches = list(batches)
    for layer, part, first, elements in parts_of(problem, plan.rounds):
        layout = plan.layout(elements, problem.element_bytes)
        for batch, pieces in batches:
            deadline.check()
            edges = layout.starts(pieces).tolist()
            starts, stops = edges[: len(batch)], edges[len(batch) :]
            for transfer, start, stop in zip(batch, starts, stops, strict=True):
                if start < stop:
                    yield Listed(transfer, layer, part, first + start, stop - start)


def _batches(plan: Plan, server: int, deadline: Deadline) -> Iterator[_Batch]:
    """Yield what a server sends, with the pieces at which transfers start, and then stop."""
    import numpy as np

    transfers = iter(plan.transfers(server))
    while batch := list(islice(transfers, _BATCH)):
        deadline.check()
        firsts = [transfer.thread * plan.pieces + transfer.offset for transfer in batch]
        stops = [first + transfer.length for first, transfer in zip(firsts, batch, strict=True)]
        yield batch, np.array(firsts + stops, dtype=np.int64)
