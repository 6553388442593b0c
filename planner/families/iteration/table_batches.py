"""The best batches of one side for any cost, with parameters cut at a grid of places.

Problem: send all bytes of one side, pushes or pulls, each once it is ready (pulls: seen from the
end); the last one as early as possible. Method: dynamic programming over places at which batches
end. Places share bytes and time; every end of a parameter is one. Guarantee: the earliest end of
all batches that are cut at these places, bytes in the order in which they are ready.
Complexity: O(places²) in NumPy. Source: iBatch's dynamic program, for any cost and cut parameters.
"""

from collections.abc import Sequence

import numpy as np

from planner.families.caramel.grid_costs import places
from planner.families.caramel.pricing import Load
from planner.model.costs import TransferCost

PLACES = 800
"""Number of places, about."""


def table_batches(
    moments: Sequence[int],
    sizes: Sequence[int],
    cost: TransferCost,
    element: int,
    count: int = PLACES,
) -> list[Load]:
    """Return the batches in the order in which bytes are ready.

    `moments`: when each parameter is ready. Parameters are cut at multiples of `element` bytes.
    """
    order, cuts = places(moments, sizes, count)
    ends, ready, pieces = [0], [0], []
    for j, inside in zip(order, cuts, strict=True):
        start = 0
        for cut in [*(cut - cut % element for cut in inside[:-1]), sizes[j]]:
            if cut > start:
                pieces.append((j, cut - start))
                ends.append(ends[-1] + cut - start)
                ready.append(moments[j])
                start = cut
    _, before = earliest_batches(ready, ends, cost)
    batches: list[Load] = []
    place = len(ends) - 1
    while place:
        load: dict[int, int] = {}
        for j, size in pieces[before[place] : place]:
            load[j] = load.get(j, 0) + size
        batches.append(tuple(load.items()))
        place = before[place]
    return batches[::-1]


def earliest_batches(
    ready: Sequence[int], sent: Sequence[int], cost: TransferCost
) -> tuple[int, list[int]]:
    """Return when the last of the best batches ends, and the place before each batch.

    `sent`: bytes up to each place, from 0; `ready`: when the bytes before each place are ready.
    """
    bytes_to = np.array(sent, dtype=np.int64)
    lasting = cost.costs_ns(np.maximum(bytes_to[:, None] - bytes_to, 0).T)
    best, before = np.zeros(len(sent), dtype=np.int64), [0] * len(sent)
    for place in range(1, len(sent)):
        end = np.maximum(best[:place], ready[place]) + lasting[:place, place]
        before[place] = int(end.argmin())
        best[place] = end[before[place]]
    return int(best[-1]), before
