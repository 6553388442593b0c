"""The greedy activation order on graphs of any width, by bit sets.

Problem: as in `planner.families.caramel.activation_order`, for graphs so wide that its search
visits the same ops again and again. Method: for every op, the set of parameters that need it, as
bits. When an op is done, its time is subtracted from the closure cost of each parameter in its set.
Guarantee: the same order as the search's. Complexity: O(m·p / 64) for the sets, O(n·p) for the
costs, in blocks of NumPy; memory n·p bits. Source: Hashemi et al., *Caramel* §4.1, stage 1, with
bit sets as in Warshall's algorithm.
"""

import numpy as np
from numpy.typing import NDArray

from planner.model.graphs import Graph

_PICKED = np.iinfo(np.int64).max


def activation_by_reachability(graph: Graph) -> tuple[int, ...]:
    """Return the parameters in the order in which their gradients should be completed."""
    state = _Closures(graph)
    order = []
    for _ in graph.parameters:
        picked = state.cheapest()
        order.append(picked)
        state.finish(picked)
    return tuple(order)


class _Closures:
    """The ops that every parameter still needs, and their total time."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.width = len(graph.parameters)
        self.dependents = [0] * len(graph.ops)  # bit j: parameter j needs the op
        for j, updaters in enumerate(graph.updaters):
            for op in updaters:
                self.dependents[op] |= 1 << j
        for op in reversed(graph.topological):
            for following in graph.successors[op]:
                self.dependents[op] |= self.dependents[following]
        self.done = [False] * len(graph.ops)
        self.cost = np.zeros(self.width, dtype=np.int64)
        for op, details in enumerate(graph.ops):
            if details.duration_ns and self.dependents[op]:
                self.cost += details.duration_ns * self._bits(op)

    def _bits(self, op: int) -> NDArray[np.int64]:
        data = self.dependents[op].to_bytes((self.width + 7) // 8, "little")
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        return bits[: self.width].astype(np.int64)

    def cheapest(self) -> int:
        """Return the first cheapest parameter whose closure contains no other cheapest closure."""
        candidates = np.flatnonzero(self.cost == self.cost.min()).tolist()
        return int(next(j for j in candidates if self._is_first(j, candidates)))

    def _is_first(self, parameter: int, candidates: list[int]) -> bool:
        """Return whether no other candidate needs strictly less than `parameter`."""
        closure = self._closure(parameter)
        inside = (
            candidate for candidate in candidates if closure.issuperset(self._left(candidate))
        )
        return all(self._needs(candidate, parameter) for candidate in inside)

    def _left(self, parameter: int) -> list[int]:
        return [op for op in self.graph.updaters[parameter] if not self.done[op]]

    def _needs(self, holder: int, held: int) -> bool:
        """Return whether the closure of `holder` contains that of `held`."""
        return all(self.dependents[op] >> holder & 1 for op in self._left(held))

    def _closure(self, parameter: int) -> set[int]:
        closure: set[int] = set()
        stack = self._left(parameter)
        while stack:
            op = stack.pop()
            if op not in closure:
                closure.add(op)
                stack += [before for before in self.graph.predecessors[op] if not self.done[before]]
        return closure

    def finish(self, parameter: int) -> None:
        """Mark the closure of a parameter as done."""
        for op in self._closure(parameter):
            self.done[op] = True
            if self.graph.ops[op].duration_ns:
                self.cost -= self.graph.ops[op].duration_ns * self._bits(op)
        self.cost[parameter] = _PICKED
