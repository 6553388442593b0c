"""Transfer windows: when each gradient is ready, and how much computation waits for it.

Problem: for a fixed op order, sending gradients is the one-machine problem 1 | r_j, q_j | Cmax.
Parameter j is ready at its head r_j (time 0 is the start of the backward pass); its tail q_j is the
forward computation from the op that first reads it. An iteration lasts max(backward + forward, max
over transfers of (end + tail)).
Complexity: O(ops + parameters).
Source: Caramel §3.1 (start and end boundary); Carlier, "The one-machine sequencing problem", EJOR
11 (1982), for heads and tails.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from planner.model.graphs import Graph
from planner.model.validation import shown
from planner.solving.deadline import Deadline


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of all parameters under one op order, in the order of `Graph.parameters`."""

    sizes: tuple[int, ...]  # bytes
    heads: tuple[int, ...]  # when each gradient is ready (ns from the start of the backward pass)
    tails: tuple[int, ...]  # forward computation from the first op that reads it to the end (ns)
    backward_ns: int  # computation of each pass
    forward_ns: int

    @property
    def compute_ns(self) -> int:
        """Computation of an iteration: its length if no transfer is waited for (ns)."""
        return self.backward_ns + self.forward_ns


def ready_times(graph: Graph, backward: Sequence[int]) -> tuple[int, ...]:
    """Return when each gradient is complete under the op order `backward` (ns)."""
    ends = accumulate(graph.ops[index].duration_ns for index in backward)
    end = dict(zip(backward, ends, strict=True))
    return tuple(max(end[index] for index in updaters) for updaters in graph.updaters)


def windows(graph: Graph, backward: Sequence[int], forward: Sequence[int]) -> Windows:
    """Return the windows of every parameter under one order of all ops."""
    left = forward_ns = sum(graph.ops[index].duration_ns for index in forward)
    tail = {}
    for index in forward:
        tail[index] = left
        left -= graph.ops[index].duration_ns
    return Windows(
        sizes=tuple(parameter.size_bytes for parameter in graph.parameters),
        heads=ready_times(graph, backward),
        tails=tuple(max(tail[index] for index in readers) for readers in graph.readers),
        backward_ns=sum(graph.ops[index].duration_ns for index in backward),
        forward_ns=forward_ns,
    )


def first_break(graph: Graph, order: Sequence[int]) -> tuple[int, str] | None:
    """Return the place of the first rule violation in an order, and its description, or None.

    The rule: each op runs once, after the ops of its pass that it depends on.
    """
    done: set[int] = set()
    for place, index in enumerate(order):
        op = graph.ops[index]
        if index in done:
            return place, f"{shown(op.name)} given twice"
        for needed in graph.predecessors[index]:
            before = graph.ops[needed]
            if needed not in done and before.phase == op.phase:
                why = f"{shown(op.name)} comes before {shown(before.name)}, which it depends on"
                return place, why
        done.add(index)
    return None


def last_ready(graph: Graph, orders: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return when each gradient is complete on the last of the workers with these orders (ns).

    The same as the latest of `ready_times`, but fast for thousands of orders.
    """
    import numpy as np  # here, so that the command line starts without it

    rows = np.array(orders, dtype=np.int64)
    durations = np.array([op.duration_ns for op in graph.ops], dtype=np.int64)
    by_op = np.zeros((len(rows), len(graph.ops)), dtype=np.int64)
    np.put_along_axis(by_op, rows, np.cumsum(durations[rows], axis=1), axis=1)
    latest = by_op.max(axis=0).tolist()
    return tuple(max(latest[index] for index in updaters) for updaters in graph.updaters)


# ---
# Random topological op orders, one per worker, for methods that enforce no order.
#
# Problem: a collective waits for the last worker to have the gradient. Activation order and
# enforcement (Caramel §4.1) remove this wait. Guarantee: every order respects the dependencies, and
# the same seed gives the same orders. Complexity: O(ops + dependencies) per order. Source: Caramel
# §3.3.2 (A), "Randomness in transfer boundaries".


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
