"""Caramel's batcher: small parameters share a transfer while the network is busy.

Problem: choose the gradients that travel together, as they become ready.
Rule: in order of readiness, a parameter above the threshold travels alone. A smaller parameter
joins the active batch. The batch leaves when it exceeds the threshold, or when the queued transfers
end before the next update, so that waiting would leave the network idle. Gradients that become
ready at the same moment count as one update.
Guarantee: none. A batch of several parameters exceeds the threshold by less than its last member.
Complexity: O(n) after sorting.
Source: Caramel §4.2.
"""

from collections.abc import Callable, Sequence

__all__ = ["small_batches"]


def small_batches(
    order: Sequence[int],
    sizes: Sequence[int],
    heads: Sequence[int],
    cost_ns: Callable[[int], int],
    threshold: int | None,
) -> list[list[int]]:
    """Return the batches in the order in which they join the queue.

    `order` lists the parameters by readiness; a parameter of at most `threshold` bytes is small
    (None: all are).
    """
    batches: list[list[int]] = []
    active: list[int] = []
    filled = 0  # bytes of the active batch
    free = 0  # when the queued transfers end

    def send(batch: list[int]) -> None:
        nonlocal free
        start = max(free, heads[batch[-1]])
        free = start + cost_ns(sum(sizes[j] for j in batch))
        batches.append(batch)

    for place, j in enumerate(order):
        if threshold is not None and sizes[j] > threshold:
            send([j])
        else:
            active.append(j)
            filled += sizes[j]
            if threshold is not None and filled > threshold:
                send(active)
                active, filled = [], 0
        last = place + 1 == len(order)
        upcoming = None if last else heads[order[place + 1]]
        idle = upcoming is None or (heads[j] < upcoming and free <= upcoming)
        if active and idle:
            send(active)
            active, filled = [], 0
    return batches
