"""Caramel's batcher: small parameters share a transfer while the network is busy anyway.

Problem: which gradients to send together, as they become ready?

Rule: in the order of readiness, a parameter above the threshold travels alone. A smaller one joins
the active batch. The batch leaves when it exceeds the threshold, or when the transfers in the queue
will have finished before the next update, so that waiting longer would leave the network idle.
Gradients that become ready at the same moment count as one update.

Guarantee: none; every parameter is in exactly one batch, and a batch of several is larger than the
threshold by less than its last member.

Complexity: O(n) after sorting. Source: Caramel §4.2.
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

    Parameters
    ----------
    order : sequence of int
        Parameters by readiness.
    sizes, heads : sequence of int
        Bytes and readiness of every parameter.
    cost_ns : callable
        Time of one transfer of so many bytes.
    threshold : int or None
        Largest small parameter, in bytes; None if all are small.
    """
    batches: list[list[int]] = []
    active: list[int] = []
    filled = 0  # bytes of the active batch
    free = 0  # when the transfers in the queue will have finished

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
