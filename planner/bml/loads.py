"""How many bytes every NIC sends and receives in every step of the aggregation.

The broadcast is the reverse: what a NIC sends in step d it receives in step D - 1 - d of that.

Complexity. O(k·N) array operations a step and thread of a `Schedule`, from the sizes of its slices;
O(trees·N) for a `TreePlan`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from planner.bml.layout import Layout
from planner.bml.schedule import Schedule
from planner.bml.trees import TreePlan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Loads", "loads"]


class Loads(NamedTuple):
    """What NICs carry in one step, in bytes.

    Attributes
    ----------
    sent, received : ndarray of int64, shape (k, N)
        For each level and server.
    """

    sent: "NDArray[np.int64]"
    received: "NDArray[np.int64]"


def loads(plan: Schedule | TreePlan, layout: Layout) -> Iterator[Loads]:
    """Return what NICs carry in each step of the aggregation, one after the other."""
    if isinstance(plan, TreePlan):
        return _of_trees(plan, layout)
    return _of_schedule(plan, layout)


def _nothing(plan: Schedule | TreePlan) -> Loads:
    import numpy as np

    shape = plan.bcube.k, plan.bcube.servers
    return Loads(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64))


def _of_trees(plan: TreePlan, layout: Layout) -> Iterator[Loads]:
    found = [_nothing(plan) for _ in range(plan.steps)]
    for piece, tree in enumerate(plan.trees):
        size = layout.span(piece, 1)
        for step, sender, receiver, level in tree.branches:
            found[step].sent[level, sender] += size
            found[step].received[level, receiver] += size
    yield from found


def _of_schedule(schedule: Schedule, layout: Layout) -> Iterator[Loads]:
    import numpy as np

    bcube = schedule.bcube
    n, k, count = bcube.n, bcube.k, bcube.servers
    dead = np.array(sorted(schedule.dead), dtype=np.int64)
    servers = np.arange(count, dtype=np.int64)
    held = [np.zeros(count, dtype=np.int64) for _ in range(k)]  # digits t … t+w-1 as a number
    bounds = [np.arange(2, dtype=np.int64) * count for _ in range(k)]
    for w in range(k):
        if w in schedule.half_steps:
            half = _nothing(schedule)
            for detour in schedule.detours:
                if detour.step == w:
                    for part in detour.parts:
                        first = detour.thread * count + part.offset
                        size = layout.span(first, part.length)
                        half.sent[part.level, detour.sender] += size
                        half.received[part.level, part.via] += size
            yield half
        step = _nothing(schedule)
        length: int = n ** (k - 1 - w)
        for t in range(k):
            level = (t + w) % k
            before = np.diff(layout.starts(t * count + bounds[t]))[held[t]]
            held[t] = held[t] * n + servers // int(n**level) % n
            bounds[t] = np.arange(n ** (w + 1) + 1, dtype=np.int64) * length
            sizes = np.diff(layout.starts(t * count + bounds[t]))[held[t]]
            step.sent[level] = before - sizes
            step.received[level] = (n - 1) * sizes
            for server in dead.tolist():
                for peer in bcube.neighbours(server, level):
                    step.received[level, peer] -= sizes[peer]
        for detour in schedule.detours:
            if detour.step == w:
                level = (detour.thread + w) % k
                digit = bcube.digit(detour.receiver, level)
                place = int(held[detour.thread][detour.sender]) // n * n + digit
                first = detour.thread * count + place * length
                size = layout.span(first, length)
                step.sent[level, detour.sender] -= size
                step.received[level, detour.receiver] -= size
        step.sent[:, dead] = 0
        step.received[:, dead] = 0
        yield step
