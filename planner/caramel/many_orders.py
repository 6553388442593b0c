"""Check thousands of op orders at once, and compute when the last worker has each gradient.

Problem: if no order is enforced, each of thousands of workers has its own op order.
Guarantee: the same results as one order after the other (`planner.caramel.windows.ready_times`). An
invalid order is detected, but not which one.
Complexity: O(workers · (ops log ops + dependencies + updaters)) in NumPy, memory O(workers · ops).
Source: own.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.graphs import Graph, Phase

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["are_orders", "last_ready"]


def are_orders(graph: Graph, orders: Sequence[Sequence[int]], phase: Phase) -> bool:
    """Return whether each of `orders` runs every op of a pass once, after the ops it needs."""
    import numpy as np

    ops = {index for index, op in enumerate(graph.ops) if op.phase == phase}
    if any(len(order) != len(ops) or ops.symmetric_difference(order) for order in orders):
        return False
    rows = _rows(orders)
    place = _by_op(graph, rows, np.broadcast_to(np.arange(len(ops)), rows.shape))
    return all(
        bool((place[:, needed] < place[:, index]).all())
        for index in ops
        for needed in graph.predecessors[index]
        if graph.ops[needed].phase == phase
    )


def last_ready(graph: Graph, orders: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return when each gradient is complete on the last of the workers with these orders (ns)."""
    import numpy as np

    rows = _rows(orders)
    durations = np.array([op.duration_ns for op in graph.ops], dtype=np.int64)
    latest = _by_op(graph, rows, np.cumsum(durations[rows], axis=1)).max(axis=0).tolist()
    return tuple(max(latest[index] for index in updaters) for updaters in graph.updaters)


def _rows(orders: Sequence[Sequence[int]]) -> "NDArray[np.int64]":
    import numpy as np

    return np.array(orders, dtype=np.int64)


def _by_op(
    graph: Graph, rows: "NDArray[np.int64]", values: "NDArray[np.int64]"
) -> "NDArray[np.int64]":
    """Rearrange values by place in each order into values by op."""
    import numpy as np

    by_op = np.zeros((len(rows), len(graph.ops)), dtype=np.int64)
    np.put_along_axis(by_op, rows, values, axis=1)
    return by_op
