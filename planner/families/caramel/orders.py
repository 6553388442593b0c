"""Random topological op orders, one per worker, for methods that enforce no order.

Problem: a collective waits for the last worker to have the gradient. Activation order and
enforcement (Caramel §4.1) remove this wait.
Guarantee: every order respects the dependencies, and the same seed gives the same orders.
Complexity: O(ops + dependencies) per order.
Source: Caramel §3.3.2 (A), "Randomness in transfer boundaries".
"""

from collections.abc import Callable
from random import Random

from planner.model.graphs import Graph
from planner.solving.deadline import Deadline


def drawn_orders(
    graph: Graph, workers: int, seed: int, deadline: Deadline
) -> tuple[tuple[int, ...], ...]:
    """Return one random topological order of the backward ops for each worker.

    At each step every op that could run next is equally likely. The same seed gives the same orders
    on every machine. Raises `TimeUpError` if the deadline passes first.
    """
    backward = [op.phase == "backward" for op in graph.ops]
    missing = [sum(backward[needed] for needed in before) for before in graph.predecessors]
    ready = [
        index for index, is_backward in enumerate(backward) if is_backward and not missing[index]
    ]
    orders = []
    for worker in range(workers):
        deadline.check()
        bits = Random(f"{seed}/{worker}").getrandbits
        orders.append(_draw(graph, list(missing), list(ready), bits))
    return tuple(orders)


def _draw(
    graph: Graph, missing: list[int], ready: list[int], bits: Callable[[int], int]
) -> tuple[int, ...]:
    successors = graph.successors
    order = []
    while ready:
        count = len(ready)
        width = count.bit_length()
        place = bits(width)
        while place >= count:
            place = bits(width)
        ready[place], ready[-1] = ready[-1], ready[place]
        index = ready.pop()
        order.append(index)
        for following in successors[index]:
            missing[following] -= 1
            if not missing[following]:
                ready.append(following)
    return tuple(order)
