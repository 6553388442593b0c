"""How many nodes pull from the same one at once.

Problem: of the N pulls in a turn (one a node, its own gradient needs no network), count how many go
to each node. More than one at a node is a hot spot: they share its NIC.

Complexity: O(turns·N) for a window of turns and nodes.
Source: own; "rotated" is how a total exchange is spread over turns.
"""

from collections.abc import Callable, Sequence

from planner.bigdl.plan import Exchange

__all__ = ["pulls_at_once", "window_of"]


def pulls_at_once(
    plan: Exchange, turns: int | None = None, nodes: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return for each turn how many others pull gradients from each node.

    A node with an empty slice pulls nothing.

    Parameters
    ----------
    plan : Exchange
        Who asks whom.
    turns, nodes : int, optional
        Only the first ones; all by default.
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
    """Return the same for any order.

    Parameters
    ----------
    asked : callable
        Returns whom a node asks in a turn.
    pulling : sequence of int
        Nodes that pull.
    turns, nodes : int
        How many turns and nodes are counted, from the first on.
    """
    rows = []
    for turn in range(turns):
        counts = [0] * nodes
        for node in pulling:
            server = asked(node, turn)
            if server != node and server < nodes:
                counts[server] += 1
        rows.append(tuple(counts))
    return tuple(rows)
