"""Which gradients to compute first (Caramel's stage 1).

Problem: backward ops can run in many orders; which one completes gradients early? The paper's
greedy rule picks, again and again, the parameter whose *closure* (the ops still to run before its
gradient is complete) takes the shortest time, and marks that closure as done.

Guarantee: exactly the greedy order, as if every closure were computed anew at each pick. Of equally
cheap parameters, one whose closure strictly contains another one's waits; of the others the first
in the request is picked. (The paper leaves ties open. Without the first rule, an op that takes no
time could make a gradient wait for another one that needs more.) The greedy order itself is a
heuristic.

Method: best-first search over ops, keyed by the cost of their closures, as in Dijkstra's algorithm:
an op is queued once everything it needs is explored, so whatever is not explored needs a queued op
that costs no more, and the first parameter that leaves the queue is a cheapest one. A pick lowers
costs only downstream of what it marks, and only there they are computed again. Closures overlap,
so the cost of a join is that of its dearest predecessor plus what only the others need, found by
walking back from them until an ancestor of the dearest. Most of these are recognised in O(1) as
ancestors in a spanning tree along the longest paths, the others by walking forward to such a one.

Complexity: near-linear where joins close after few ops, as in training graphs: O(n log n + m) and
the ops between forks and joins, with whatever is explored ahead of a pick (ops that take much less
time than the next gradient) visited once more. In general each cost of a join is one weighted
reachability, O(n + m): of every join once, and again after each pick that lowers it. Wide random
graphs are such a case: there the search gives up after O(n + m) visits, and the closures are kept
as sets of bits instead (`planner.caramel.reachability`), O(n·p) simple steps. Memory O(n + m).

Source: Hashemi et al., *Caramel* §4.1, stage 1; the search is ours.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from math import inf

from planner.graphs import Graph

__all__ = ["activation_order", "activation_steps", "backward_order"]

PATIENCE = 4
"""Visits an op and a dependency may take on average before the search gives up; about one is usual
on training graphs."""

MAX_BITS = 2**33
"""With larger sets (1 GiB) the search does not give up."""


def activation_order(graph: Graph) -> tuple[int, ...]:
    """Return the parameters in the order in which their gradients should be completed.

    Parameters
    ----------
    graph : Graph
        The graph; forward ops count towards what a gradient needs.

    Returns
    -------
    tuple of int
        Indices into `Graph.parameters`.
    """
    search = _Search(graph)
    with suppress(_TooWideError):
        return tuple(search.picks())
    from planner.caramel.reachability import activation_by_reachability

    return activation_by_reachability(graph)


def activation_steps(graph: Graph, activation: Sequence[int]) -> list[list[int]]:
    """Return what each parameter needs that no parameter before it needs. O(n log n + m).

    Parameters
    ----------
    graph : Graph
        The graph.
    activation : sequence of int
        The parameters in any order.

    Returns
    -------
    list of list of int
        For each parameter of `activation`, indices of ops of both passes, in the stable topological
        order.
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

    Parameters
    ----------
    graph : Graph
        The graph.
    activation : sequence of int
        All parameters, in any order.

    Returns
    -------
    tuple of int
        Indices into `Graph.ops`.
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
    """Joins reach back too far for the search to be the faster method."""


class _Search:
    """The state of the search over *nodes*: the n ops, and n + p for parameter p.

    A parameter's node takes no time, needs the ops that update it and is needed by nothing. Having
    the highest numbers, parameters leave the queue after all ops that cost the same.
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
        self.marked = [False] * count  # done, or picked
        self.explored = [False] * count
        self.cost = [-1] * count  # of the closure; -1 until the node is queued
        self.unexplored = [len(needed) for needed in self.needed]
        self.unmarked = list(self.unexplored)
        self.waiting: dict[int, list[int]] = {}  # for a parameter that costs the same
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
                continue  # an entry from before its cost fell
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
        """Return the closure of a parameter, and who goes first although it costs the same.

        That is a parameter whose closure is strictly contained in this one; once it is found, the
        closure is left incomplete.
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
            # The latest first: whoever goes first is most likely found near by.
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
        for node in touched:  # it may have been waiting, and need not any more
            if not self.marked[node] and self.cost[node] >= 0:
                heappush(self.queue, (self.cost[node], node))
        self._lower_costs(closure)
        return sorted(node - self.ops for node in complete if node != picked)

    def _lower_costs(self, closure: set[int]) -> None:
        """Compute anew the known costs downstream of what has just been marked."""
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
        """Compute the cost of a node whose predecessors' costs are up to date, and queue it."""
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
        """Return what the closures of several explored ops cost together."""
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
        """Return whether the explored op `target` needs `op`; `reaching` is what is known of it."""
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
                # Parameters and whatever comes later in the topological order lead nowhere.
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
    """Return intervals of which a is within b's if b is on the way to a in a spanning tree.

    The parent of an op is the predecessor that ends the longest path: the one through which
    most ancestors can be expected to lead.
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
