"""Activation order: which gradients to compute first (Caramel's stage 1).

Problem: choose the order in which the backward pass completes the gradients. Method: Caramel's
greedy rule always picks the gradient whose *closure*, the ops still to run before it is complete,
takes least time. Ops that the same parameters need form a class, a set of parameters as bits.
Guarantee: exactly the greedy order, which is a heuristic. Among parameters of equal cost, one whose
closure strictly contains another's waits; the rest keep the request's order. Complexity: O(n + m)
unions of sets, and two passes over the p parameters for each of c classes, in NumPy; in training
graphs c is about 2p. Memory c·p bits. See docs/caramel.md, "How the activation order is computed".
Source: Hashemi et al., *Caramel* §4.1, stage 1.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.model.graphs import Graph
from planner.model.validation import MAX_TOTAL

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def activation_order(graph: Graph) -> tuple[int, ...]:
    """Return the parameters (indices) in the order in which their gradients should be completed.

    A gradient's closure includes forward ops.
    """
    closures, order = _Closures(graph), []
    for _ in graph.parameters:
        picked = closures.cheapest()
        closures.finish(picked)
        order.append(picked)
    return tuple(order)


def activation_steps(graph: Graph, activation: Sequence[int]) -> list[list[int]]:
    """Return, for each parameter of `activation`, the ops that no earlier parameter needs.

    Includes ops of both passes; each step is in stable topological order. O(n log n + m).
    """
    position = _positions(graph)
    marked = [False] * len(graph.ops)
    steps = []
    for parameter in activation:
        step = []
        stack = list(graph.updaters[parameter])
        while stack:
            op = stack.pop()
            if not marked[op]:
                marked[op] = True
                step.append(op)
                stack += graph.predecessors[op]
        steps.append(sorted(step, key=position.__getitem__))
    return steps


def backward_order(graph: Graph, activation: Sequence[int]) -> tuple[int, ...]:
    """Return the backward ops in an order that completes the gradients in the order `activation`.

    Ops that no gradient needs come last. O(n log n + m).
    """
    needed = [op for step in activation_steps(graph, activation) for op in step]
    rest = set(graph.topological).difference(needed)
    needed += [op for op in graph.topological if op in rest]
    return tuple(op for op in needed if graph.ops[op].phase == "backward")


def _positions(graph: Graph) -> list[int]:
    position = [0] * len(graph.ops)
    for place, op in enumerate(graph.topological):
        position[op] = place
    return position


class _Closures:
    """The time of each parameter's closure, and the number of its ops that take no time.

    Only this number distinguishes a closure from one of equal time that strictly contains it.
    """

    def __init__(self, graph: Graph) -> None:
        import numpy as np  # here, so that the command line starts without it

        self.graph, count = graph, len(graph.parameters)
        needing = [0] * len(graph.ops)  # bit j: parameter j needs the op
        for j, updaters in enumerate(graph.updaters):
            for op in updaters:
                needing[op] |= 1 << j
        classes: dict[int, int] = {}
        bits: list[int] = []  # of each class, kept once for all its ops
        self.of = [0] * len(graph.ops)  # the class of each op
        for op in reversed(graph.topological):
            for following in graph.successors[op]:
                needing[op] |= needing[following]
            self.of[op] = number = classes.setdefault(needing[op], len(bits))
            if number == len(bits):
                bits.append(needing[op])
            needing[op] = bits[number]
        self.rows = [each.to_bytes(-(-count // 8), "little") for each in bits]
        self.times, self.idle = [0] * len(classes), [0] * len(classes)
        for op, number in enumerate(self.of):
            self.times[number] += graph.ops[op].duration_ns
            self.idle[number] += not graph.ops[op].duration_ns
        self.done = [False] * len(classes)
        self.time_left = np.zeros(count, dtype=np.int64)
        self.idle_left = np.zeros(count, dtype=np.int64)
        for number in range(len(classes)):
            self._count(number, 1)

    def _needing(self, number: int) -> "NDArray[np.bool_]":
        """Return which parameters need the ops of a class."""
        import numpy as np

        row = np.frombuffer(self.rows[number], dtype=np.uint8)
        return np.unpackbits(row, count=len(self.time_left), bitorder="little").view(np.bool_)

    def _count(self, number: int, sign: int) -> None:
        import numpy as np

        needing = self._needing(number)
        for left, amounts in ((self.time_left, self.times), (self.idle_left, self.idle)):
            if amounts[number]:
                np.add(left, sign * amounts[number], out=left, where=needing)

    def _left(self, parameter: int) -> list[int]:
        return [op for op in self.graph.updaters[parameter] if not self.done[self.of[op]]]

    def cheapest(self) -> int:
        """Return the first cheapest parameter whose closure contains no other cheapest closure."""
        import numpy as np

        left = np.flatnonzero(self.time_left == self.time_left.min())
        first = int(left[-1])
        while len(left) and left[0] <= first:
            idle = self.idle_left[left]
            least = int(left[idle.argmin()])  # contains no other cheapest closure
            first = min(first, least)
            if len(left) == 1 or first == left[0]:
                break
            contains = idle > self.idle_left[least]
            for op in self._left(least):
                contains &= self._needing(self.of[op])[left]
            left = left[~contains & (left != least)]
        return first

    def finish(self, parameter: int) -> None:
        """Mark the closure of a parameter, whole classes, as done."""
        stack, found = self._left(parameter), set[int]()
        while stack:
            op = stack.pop()
            if op not in found:
                found.add(op)
                needed = self.graph.predecessors[op]
                stack += [before for before in needed if not self.done[self.of[before]]]
        for number in {self.of[op] for op in found}:
            self.done[number] = True
            self._count(number, -1)
        self.time_left[parameter] = MAX_TOTAL
