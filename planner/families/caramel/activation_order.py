"""Activation order: which gradients to compute first (Caramel's stage 1).

Problem: choose the order in which the backward pass completes the gradients. Method: Caramel's
greedy rule, by best-first search over ops keyed by the cost of their closures (the ops still to run
before a gradient is complete), as in Dijkstra's algorithm. Guarantee: exactly the greedy order; the
greedy order itself is a heuristic. Among parameters of equal cost, one whose closure strictly
contains another's waits; the rest keep the request's order. Complexity: near-linear in training
graphs, O(n·p) on wide graphs (`planner.families.caramel.reachability`). Memory O(n + m). See
docs/caramel.md, "Why the activation order is fast to compute". Source: Hashemi et al., *Caramel*
§4.1, stage 1; the search is our own.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from math import inf

from planner.model.graphs import Graph

PATIENCE = 4
"""Mean visits per op and dependency before the search gives up; about 1 is usual on training
graphs."""

MAX_BITS = 2**33
"""Largest size of the bit sets (1 GiB): the search does not give up if the bit sets would be
larger."""


def activation_order(graph: Graph) -> tuple[int, ...]:
    """Return the parameters (indices) in the order in which their gradients should be completed.

    A gradient's closure includes forward ops.
    """
    search = _Search(graph)
    with suppress(_TooWideError):
        return tuple(search.picks())
    from planner.families.caramel.reachability import activation_by_reachability

    return activation_by_reachability(graph)


def activation_steps(graph: Graph, activation: Sequence[int]) -> list[list[int]]:
    """Return, for each parameter of `activation`, the ops that no earlier parameter needs.

    Ops of both passes, each step in the stable topological order. O(n log n + m).
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


class _TooWideError(Exception):
    """The search would be slower than bit sets: joins reach back too far."""


class _Search:
    """The state of the search over *nodes*: the n ops, and n + p for parameter p.

    A parameter's node takes no time, needs the ops that update it, and no node needs it. It has a
    higher number than all ops, so it leaves the queue after all ops of equal cost.
    """

    def __init__(self, graph: Graph) -> None:
        self.ops = len(graph.ops)
        count = self.ops + len(graph.parameters)
        self.duration = [op.duration_ns for op in graph.ops] + [0] * len(graph.parameters)
        self.needed = graph.predecessors + graph.updaters
        self.following = [list(following) for following in graph.successors]
        self.following += [[] for _ in graph.parameters]
        for node in range(self.ops, count):
            for op in self.needed[node]:
                self.following[op].append(node)
        self.position = [*_positions(graph), *range(self.ops, count)]
        self.enter, self.leave = _spanning_tree(graph, self.position)
        self.marked = [False] * count
        self.explored = [False] * count
        self.cost = [-1] * count  # of the closure; -1 until the node is queued
        self.unexplored = [len(needed) for needed in self.needed]
        self.unmarked = list(self.unexplored)
        self.waiting: dict[int, list[int]] = {}  # parameters that wait for one of equal cost
        self.queue: list[tuple[int, int]] = []
        patience = PATIENCE if self.ops * len(graph.parameters) <= MAX_BITS else inf
        self.work = patience * (count + sum(map(len, self.needed)))
        for node in range(self.ops):
            if not self.needed[node]:
                self._set_cost(node)

    def picks(self) -> Iterator[int]:
        """Yield the parameters in activation order."""
        while self.queue:
            cost, node = heappop(self.queue)
            if self.explored[node] or self.marked[node] or cost != self.cost[node]:
                continue  # outdated: its cost has fallen since
            if node < self.ops:
                self._explore(node)
                continue
            closure, smaller = self._closure(node)
            if smaller is None:
                yield node - self.ops
                yield from self._mark(node, closure)
            else:
                self.waiting.setdefault(smaller, []).append(node)

    def _explore(self, op: int) -> None:
        self.explored[op] = True
        unexplored = self.unexplored
        for node in self.following[op]:
            unexplored[node] -= 1
            if not unexplored[node]:
                self._set_cost(node)

    def _closure(self, node: int) -> tuple[set[int], int | None]:
        """Return the closure of a parameter, and a parameter of equal cost to pick first, or None.

        The closure of the second parameter is strictly contained in the closure of the first. If
        there is one, the returned closure is incomplete.
        """
        cost = self.cost[node]
        updaters = [op for op in self.needed[node] if not self.marked[op]]
        last = max(updaters, key=self.position.__getitem__)
        closure: set[int] = set()
        covered: Counter[int] = Counter()
        twins = []
        stack = list(updaters)
        while stack:
            op = stack.pop()
            if op in closure:
                continue
            closure.add(op)
            # Latest first: a parameter that has to go first is most likely found near by.
            needed = [before for before in self.needed[op] if not self.marked[before]]
            stack += sorted(needed, key=self.position.__getitem__) if len(needed) > 1 else needed
            for parameter in self.following[op]:
                if parameter < self.ops or parameter == node or self.cost[parameter] != cost:
                    continue
                covered[parameter] += 1
                if covered[parameter] == self.unmarked[parameter]:
                    if last not in self.needed[parameter]:  # nothing in here comes after `last`
                        return closure, parameter
                    twins.append(parameter)
        if len(updaters) > 1:
            for parameter in twins:
                if not self._contains(parameter, updaters):
                    return closure, parameter
        return closure, None

    def _contains(self, node: int, ops: Sequence[int]) -> bool:
        """Return whether all these ops are in the closure of `node`."""
        seen: set[int] = set()
        stack = [node]
        while stack:
            for op in self.needed[stack.pop()]:
                if op not in seen and not self.marked[op]:
                    seen.add(op)
                    stack.append(op)
        return seen.issuperset(ops)

    def _mark(self, picked: int, closure: set[int]) -> list[int]:
        """Mark the closure as done; return the other parameters that this completes."""
        complete, touched = [], set()
        for op in closure:
            self.marked[op] = True
            for node in self.following[op]:
                if node >= self.ops:
                    self.unmarked[node] -= 1
                    touched.add(node)
                    if not self.unmarked[node]:
                        self.marked[node] = True
                        complete.append(node)
        for node in complete:
            touched.update(self.waiting.pop(node, ()))
        for node in touched:  # a waiting parameter may be free now
            if not self.marked[node] and self.cost[node] >= 0:
                heappush(self.queue, (self.cost[node], node))
        self._lower_costs(closure)
        return sorted(node - self.ops for node in complete if node != picked)

    def _lower_costs(self, closure: set[int]) -> None:
        """Update the costs downstream of the closure that was just marked."""
        stack = [op for op in closure if self.duration[op]]
        seen = set(stack)
        lower = []
        cost, marked = self.cost, self.marked
        while stack:
            for node in self.following[stack.pop()]:
                if node not in seen and cost[node] >= 0:
                    seen.add(node)
                    stack.append(node)
                    if not marked[node]:
                        lower.append(node)
        self.work -= len(seen)
        for node in sorted(lower, key=self.position.__getitem__):
            self._set_cost(node)

    def _set_cost(self, node: int) -> None:
        """Compute the cost of a node from its predecessors' costs, and queue the node."""
        needed = [op for op in self.needed[node] if not self.marked[op]]
        cost = self.duration[node]
        if len(needed) == 1:
            cost += self.cost[needed[0]]
        elif needed:
            cost += self._union(needed)
        if cost != self.cost[node]:
            self.cost[node] = cost
            if not self.explored[node]:
                heappush(self.queue, (cost, node))

    def _union(self, ops: Sequence[int]) -> int:
        """Return the cost of the union of several explored ops' closures."""
        dearest = max(ops, key=lambda op: (self.cost[op], self.position[op]))
        total = self.cost[dearest]
        reaching = {dearest: True}
        counted: set[int] = set()
        stack = list(ops)
        while stack:
            op = stack.pop()
            if op not in counted and not self._reaches(op, dearest, reaching):
                counted.add(op)
                total += self.duration[op]
                stack += [before for before in self.needed[op] if not self.marked[before]]
        self.work -= len(counted) + len(reaching)
        if self.work < 0:
            raise _TooWideError
        return total

    def _reaches(self, op: int, target: int, reaching: dict[int, bool]) -> bool:
        """Return whether the explored op `target` needs `op`; `reaching` caches the answers."""
        enter, leave, place = self.enter, self.leave, self.enter[target]
        if enter[op] <= place < leave[op]:
            return True
        if op in reaching:
            return reaching[op]
        last = self.position[target]
        path = [(op, iter(self.following[op]))]
        while path:
            at, left = path[-1]
            for node in left:
                # Parameters, and ops later in the topological order, lead nowhere.
                if self.position[node] > last or not self.explored[node]:
                    continue
                known = enter[node] <= place < leave[node] or reaching.get(node)
                if known:
                    reaching.update((visited, True) for visited, _ in path)
                    return True
                if known is None:
                    path.append((node, iter(self.following[node])))
                    break
            else:
                reaching[at] = False
                path.pop()
        return False


def _spanning_tree(graph: Graph, position: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the entry and exit numbers of each op in a depth-first walk of a spanning tree.

    b is an ancestor of a in the tree if enter[b] <= enter[a] < leave[b]. The parent of an op is the
    predecessor that ends the longest path, through which most ancestors lead.
    """
    count = len(graph.ops)
    length = [0] * count
    parent = [-1] * count
    for op in graph.topological:
        if graph.predecessors[op]:
            parent[op] = max(
                graph.predecessors[op], key=lambda before: (length[before], position[before])
            )
            length[op] = length[parent[op]]
        length[op] += graph.ops[op].duration_ns
    size = [1] * (count + 1)  # the last entry stands for the root, whose index is -1
    for op in reversed(graph.topological):
        size[parent[op]] += size[op]
    enter = [0] * count
    vacant = [0] * (count + 1)
    for op in graph.topological:
        enter[op] = vacant[parent[op]]
        vacant[parent[op]] += size[op]
        vacant[op] = enter[op] + 1
    return enter, [enter[op] + size[op] for op in range(count)]
