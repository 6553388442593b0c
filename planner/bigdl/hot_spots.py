"""Number of pulls that reach each node in each turn; more than one is a hot spot that shares a NIC.

Complexity: O(turns·N) for a window of turns and nodes.
Source: own; "rotated" is the usual way to spread a total exchange over turns.
"""

from collections.abc import Callable, Sequence

from planner.bigdl.plan import Exchange

__all__ = ["pulls_at_once", "window_of"]


def pulls_at_once(
    plan: Exchange, turns: int | None = None, nodes: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return one row per turn with the number of pulls from other nodes at each node.

    A node with an empty slice pulls nothing.

    Parameters
    ----------
    plan : Exchange
        The exchange.
    turns, nodes : int, optional
        How many turns and nodes to count, from the first on; all by default.
    """
    pulling = range(min(plan.nodes, plan.elements))  # the others' slices are empty
    return window_of(
        plan.asked,
        pulling,
        plan.nodes if turns is None else min(turns, plan.nodes),
        plan.nodes if nodes is None else min(nodes, plan.nodes),
    )


def window_of(
    asked: Callable[[int, int], int], pulling: Sequence[int], turns: int, nodes: int
) -> tuple[tuple[int, ...], ...]:
    """Return the rows of `pulls_at_once` for any order, given as ``asked(node, turn)``."""
    rows = []
    for turn in range(turns):
        counts = [0] * nodes
        for node in pulling:
            server = asked(node, turn)
            if server != node and server < nodes:
                counts[server] += 1
        rows.append(tuple(counts))
    return tuple(rows)
