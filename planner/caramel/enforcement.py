"""Control edges that leave only one order of gradients (Caramel's stage 2).

Problem: a framework runs ready ops in any order. Add the dependencies that enforce the activation
order.
Method: the backward ops that a parameter needs and no earlier parameter needs form a *tag*; ops
that no gradient needs form the last tag. Edges lead from the ends of a tag to the free ops of the
next. See docs/caramel.md, "Why no control edge can be left out".
Guarantee: the graph stays acyclic, and every order that it admits has each gradient ready at the
same time as the given order. No edge can be left out.
Complexity: O(n log n + m); at most two edges per op.
Source: Hashemi et al., *Caramel* §4.1, stage 2. The paper adds all pairs' edges.
"""

from collections.abc import Sequence

from planner.caramel.activation import activation_steps
from planner.graphs import Graph

__all__ = ["control_edges", "edges_of_order"]

Edges = tuple[tuple[int, int], ...]


def control_edges(graph: Graph, activation: Sequence[int]) -> Edges:
    """Return the dependencies to add so that the gradients are completed in one order.

    Parameters
    ----------
    graph : Graph
        The graph; forward ops are taken to be done.
    activation : sequence of int
        All parameters, as `activation_order` returns them. In any other order tags still run
        sequentially, but a parameter can be ready at different times if another parameter of its
        tag needs more ops.

    Returns
    -------
    tuple of (int, int)
        Indices of backward ops: the second op waits for the first.
    """
    return _edges_between(graph, _tags(graph, activation), hubs=False)


def edges_of_order(graph: Graph, backward: Sequence[int]) -> Edges:
    """Return the dependencies to add so that gradients are ready when a given op order has them.

    `backward` lists the backward ops in the order in which they run. It is cut into tags behind
    every op that completes a parameter.
    """
    place = {op: rank for rank, op in enumerate(backward)}
    stops = {max(updaters, key=place.__getitem__) for updaters in graph.updaters}
    tags: list[list[int]] = [[]]
    for op in backward:
        tags[-1].append(op)
        if op in stops:
            tags.append([])
    return _edges_between(graph, [ops for ops in tags if ops], hubs=True)


def _edges_between(graph: Graph, tags: Sequence[Sequence[int]], *, hubs: bool) -> Edges:
    """Return the edges that make tags, topologically ordered, run sequentially.

    With `hubs` the last op of each tag but the last waits for all other ops of the tag.
    """
    tag = {op: number for number, ops in enumerate(tags) for op in ops}
    frees, ends = [], []
    for number, ops in enumerate(tags):
        needed, needing = graph.predecessors, graph.successors
        frees.append([op for op in ops if all(tag.get(before) != number for before in needed[op])])
        ends.append([op for op in ops if all(tag[after] != number for after in needing[op])])
    hub: list[int | None] = [
        mine[-1] if len(mine) > 1 and (hubs or len(free) > 1) else None
        for mine, free in zip(ends, frees[1:], strict=False)
    ]
    last = ends[-1][-1]
    hub.append(last if hubs and len(ends[-1]) > 1 and _completes(graph, last) else None)
    edges: list[tuple[int, int]] = []
    leaving: list[int] = []
    for mine, free, waits in zip(ends, frees, hub, strict=True):
        # The hub waits for the other ends of its tag, and so for everything before them.
        starting = [op for op in free if op != waits]
        edges += [
            (end, op) for end in leaving for op in starting if end not in graph.predecessors[op]
        ]
        if waits is not None:
            edges += [(end, waits) for end in mine if end != waits]
        leaving = mine if waits is None else [waits]
    return tuple(edges)


def _completes(graph: Graph, op: int) -> bool:
    return any(op in updaters for updaters in graph.updaters)


def _tags(graph: Graph, activation: Sequence[int]) -> list[list[int]]:
    """Return the backward ops of each tag, in the stable topological order."""
    backward = graph.pass_order("backward")
    known = set(backward)
    tags = [[op for op in step if op in known] for step in activation_steps(graph, activation)]
    rest = known.difference(*tags)
    tags.append([op for op in backward if op in rest])
    return [ops for ops in tags if ops]
