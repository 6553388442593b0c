"""A plan's transfers with their byte ranges, as an executor needs them.

Layers are in the order in which back-propagation finishes them, last layer first. Each layer is cut
into pieces of its own, so that its transfers can start while earlier layers' gradients are
computed. With R rounds a layer is cut into R parts first, and each part into pieces. Transfers
without bytes are left out.

Complexity: O(1) a transfer and part; starts of pieces are computed in batches. Source: own.
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
"""Transfers per array operation."""

_Batch: TypeAlias = "tuple[list[Transfer], NDArray[np.int64]]"


class Listed(NamedTuple):
    """One transfer of one part of one layer."""

    transfer: Transfer  # executed `part` steps later than its `step` says
    layer: int
    part: int
    offset_bytes: int  # in the whole gradient, layer 0 first
    length_bytes: int


def parts_of(problem: Problem, rounds: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield layer, part, first byte and number of elements of every non-empty part."""
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
    """Yield the transfers that a server sends, by layer, part and step.

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
    """Yield batches of a server's transfers, with all their first pieces, then all their ends."""
    import numpy as np

    transfers = iter(plan.transfers(server))
    while batch := list(islice(transfers, _BATCH)):
        deadline.check()
        firsts = [transfer.thread * plan.pieces + transfer.offset for transfer in batch]
        stops = [first + transfer.length for first, transfer in zip(firsts, batch, strict=True)]
        yield batch, np.array(firsts + stops, dtype=np.int64)
