"""Evaluation of a plan: its time, its steps, and its busiest NIC.

Complexity: that of `planner.families.bml.pricing`, and as much again for the layers together.
Source: own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from planner.families.bml.pricing import busiest_intact, is_intact, loads, time_ns
from planner.families.bml.problem import Problem, Stage, Transfer
from planner.families.bml.trees import Plan, TreePlan, busiest_share
from planner.families.collectives.layout import EvenLayout, Layout
from planner.solving.deadline import NEVER, Deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class StepLoad:
    """The busiest NIC of one step."""

    stage: Stage
    step: int
    pieces: int  # that it sends or receives
    bytes: int  # that it sends or receives, all layers together


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Cost of a plan.

    Attributes
    ----------
    time_ns : int
        Time of the whole synchronisation.
    load : Fraction
        Load of the busiest NIC in one direction, summed over all steps, in units of the gradient.
    steps : tuple of StepLoad
        The steps of the aggregation, then those of the broadcast.
    """

    time_ns: int
    load: Fraction
    steps: tuple[StepLoad, ...]


def evaluate(problem: Problem, plan: Plan, deadline: Deadline = NEVER) -> Evaluation:
    """Return the cost of a plan.

    Raises
    ------
    TimeUpError
        At the deadline.
    """
    return Evaluation(
        time_ns(problem, plan, deadline),
        busiest_load(plan, deadline),
        steps_of(problem, plan, deadline),
    )


def steps_of(problem: Problem, plan: Plan, deadline: Deadline = NEVER) -> tuple[StepLoad, ...]:
    """Return the busiest NIC of every step, those of the aggregation first."""
    sizes = Counter(size // problem.element_bytes for size in problem.chunks)
    layouts = [(times, plan.layout(size, problem.element_bytes)) for size, times in sizes.items()]
    in_use = plan.threads * plan.pieces - len(plan.left_out)
    units = EvenLayout(plan.threads, plan.pieces, plan.left_out, in_use, 1)  # a byte for a piece
    pieces, bytes_ = (_busiest(plan, parts, deadline) for parts in ([(1, units)], layouts))
    names: list[tuple[Stage, int]] = [
        (stage, step) for stage in ("aggregate", "broadcast") for step in range(plan.steps)
    ]
    return tuple(
        StepLoad(*name, *busiest) for name, *busiest in zip(names, pieces, bytes_, strict=True)
    )


def busiest_load(plan: Plan, deadline: Deadline = NEVER) -> Fraction:
    """Return the load of the busiest NIC in one direction, in units of the gradient.

    In the broadcast a piece loads the opposite direction of the links of its aggregation.
    """
    if is_intact(plan):
        servers, levels = plan.bcube.servers, plan.bcube.k
        return Fraction(2 * (servers - 1), levels * servers)
    if isinstance(plan, TreePlan):
        return busiest_share(plan.branch_rows[:, 1:], plan.shares, deadline)
    layout = plan.layout(plan.total_weight, 1)
    return Fraction(int(both_ways(plan, layout, deadline).max()), plan.total_weight)


def both_ways(plan: Plan, layout: Layout, deadline: Deadline = NEVER) -> "NDArray[np.int64]":
    """Return the bytes sent plus received in the aggregation, shape (k, N).

    This is each NIC's load in one direction over aggregation and broadcast together.
    """
    import numpy as np

    both: NDArray[np.int64] = np.zeros((plan.bcube.k, plan.bcube.servers), dtype=np.int64)
    for step in loads(plan, layout, deadline):
        both += step.sent
        both += step.received
    return both


def _busiest(plan: Plan, layouts: Sequence[tuple[int, Layout]], deadline: Deadline) -> list[int]:
    """Return the load of the busiest NIC in each step, given layouts with their multiplicities."""
    import numpy as np

    if is_intact(plan):
        ways = [(times, busiest_intact(plan, layout)) for times, layout in layouts]
        return [sum(times * way[step][0] for times, way in ways) for step in range(2 * plan.steps)]
    counts = [times for times, _ in layouts]
    up = []
    for same in zip(*(loads(plan, layout, deadline) for _, layout in layouts), strict=True):
        sent = sum(times * load.sent for times, load in zip(counts, same, strict=True))
        received = sum(times * load.received for times, load in zip(counts, same, strict=True))
        up.append(max(int(np.max(sent)), int(np.max(received))))
    return up + up[::-1]


# ---
# A plan's transfers with their byte ranges, as an executor needs them.
#
# Layers are in the order in which back-propagation finishes them, last layer first. Each layer is
# cut into pieces of its own, so that its transfers can start while earlier layers' gradients are
# computed. With R rounds a layer is cut into R parts first, and each part into pieces. Transfers
# without bytes are left out.
#
# Complexity: O(1) a transfer and part; starts of pieces are computed in batches. Source: own.

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
