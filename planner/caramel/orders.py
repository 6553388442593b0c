"""Op orders nobody enforces: each worker draws one of the topological orders its graph admits.

Problem: when is a gradient ready if no order is enforced? A collective waits for the worker that is
last to have it. That wait is what activation order and enforcement (Caramel §4.1) remove.

Guarantee: every order respects the dependencies, and the same seed gives the same orders.

Complexity: O(ops + dependencies) an order.
Source: Caramel §3.3.2 (A), "Randomness in transfer boundaries".
"""

from random import Random

from planner.graphs import Graph

__all__ = ["drawn_orders"]


def drawn_orders(graph: Graph, workers: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Return one random topological order of the backward ops for each worker.

    At each step every op that could run next is equally likely. The same seed gives the same
    orders on every machine.
    """
    draws = (Random(f"{seed}/{worker}") for worker in range(workers))  # noqa: S311 - no secrets
    return tuple(_draw(graph, random) for random in draws)


def _draw(graph: Graph, random: Random) -> tuple[int, ...]:
    ops = graph.ops
    missing = [
        sum(ops[needed].phase == "backward" for needed in graph.predecessors[index])
        for index in range(len(ops))
    ]
    ready = [index for index, op in enumerate(ops) if op.phase == "backward" and not missing[index]]
    order = []
    while ready:
        place = random.randrange(len(ready))
        ready[place], ready[-1] = ready[-1], ready[place]
        index = ready.pop()
        order.append(index)
        for following in graph.successors[index]:
            missing[following] -= 1
            if not missing[following]:
                ready.append(following)
    return tuple(order)
