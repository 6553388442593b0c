"""Bytes that every NIC sends and receives in every step of the aggregation.

The broadcast is the reverse: a NIC receives in broadcast step D - 1 - d its bytes sent in step d.

Complexity: O(k·N) array operations a step and thread of a `Schedule`; O(trees·N) for a `TreePlan`.
Source: own.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from planner.bml.schedule import Schedule
from planner.bml.trees import TreePlan
from planner.collectives.layout import Layout
from planner.deadline import NEVER, Deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Loads", "loads"]


class Loads(NamedTuple):
    """Bytes that each NIC carries in one step; arrays of shape (k, N)."""

    sent: "NDArray[np.int64]"
    received: "NDArray[np.int64]"


def loads(plan: Schedule | TreePlan, layout: Layout, deadline: Deadline = NEVER) -> Iterator[Loads]:
    """Yield the loads of NICs in each step of the aggregation; TimeUpError at the deadline."""
    if isinstance(plan, TreePlan):
        return _of_trees(plan, layout, deadline)
    return _of_schedule(plan, layout, deadline)


def _nothing(plan: Schedule | TreePlan) -> Loads:
    import numpy as np

    shape = plan.bcube.k, plan.bcube.servers
    return Loads(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64))


def _of_trees(plan: TreePlan, layout: Layout, deadline: Deadline) -> Iterator[Loads]:
    import numpy as np

    sizes = np.diff(layout.starts(np.arange(plan.pieces + 1, dtype=np.int64)))
    for step in range(plan.steps):
        deadline.check()
        carried = _nothing(plan)
        _, sender, receiver, level, piece = plan.rows_of_step(step).T
        np.add.at(carried.sent, (level, sender), sizes[piece])
        np.add.at(carried.received, (level, receiver), sizes[piece])
        yield carried


def _of_schedule(schedule: Schedule, layout: Layout, deadline: Deadline) -> Iterator[Loads]:
    import numpy as np

    bcube = schedule.bcube
    n, k, count = bcube.n, bcube.k, bcube.servers
    dead = np.array(sorted(schedule.dead), dtype=np.int64)
    servers = np.arange(count, dtype=np.int64)
    held = np.zeros((k, count), dtype=np.int64)  # digits t … t+w-1 as a number
    sizes = np.tile(np.diff(layout.starts(np.arange(k + 1) * count))[:, None], count)
    for w in range(k):
        if w in schedule.half_steps:
            yield _half_step(schedule, layout, w)
        step = _nothing(schedule)
        length: int = n ** (k - 1 - w)
        bounds = np.arange(n ** (w + 1) + 1, dtype=np.int64) * length
        before = sizes.copy()
        for t in range(k):
            deadline.check()
            # Step w of thread t is on level t + w (mod k). A server keeps the slice numbered by its
            # own digits so far, sends the rest of its slice, and receives n - 1 slices of the size
            # it keeps.
            level = (t + w) % k
            held[t] = held[t] * n + servers // int(n**level) % n
            sizes[t] = np.diff(layout.starts(t * count + bounds))[held[t]]
            step.sent[level] = before[t] - sizes[t]
            step.received[level] = (n - 1) * sizes[t]
            # Remove what dead servers would have sent; transfers to dead servers are blocked.
            stride: int = n**level
            first = dead - dead // stride % n * stride
            peers = (first[:, None] + np.arange(n) * stride).reshape(-1)
            np.subtract.at(step.received[level], peers, sizes[t, peers])
        _take_away(schedule, step, w, sizes)
        step.sent[:, dead] = 0
        step.received[:, dead] = 0
        yield step


def _half_step(schedule: Schedule, layout: Layout, w: int) -> Loads:
    import numpy as np

    half = _nothing(schedule)
    rows = schedule.part_rows
    thread, _, sender, level, via, offset, length = rows[rows[:, 1] == w].T
    first = thread * schedule.pieces + offset
    sizes = layout.starts(first + length) - layout.starts(first)
    np.add.at(half.sent, (level, sender), sizes)
    np.add.at(half.received, (level, via), sizes)
    return half


def _take_away(schedule: Schedule, step: Loads, w: int, sizes: "NDArray[np.int64]") -> None:
    """Subtract the blocked transfers of step w; the size of each is its receiver's slice."""
    import numpy as np

    rows = schedule.blocked_rows
    thread, _, sender, receiver = rows[rows[:, 1] == w].T
    level = (thread + w) % schedule.bcube.k
    size = sizes[thread, receiver]
    np.subtract.at(step.sent, (level, sender), size)
    np.subtract.at(step.received, (level, receiver), size)
