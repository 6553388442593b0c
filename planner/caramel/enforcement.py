"""Control edges that leave only one order of gradients (Caramel's stage 2).

Problem: a framework that runs ready ops in any order need not follow the activation order. Which
dependencies must be added so that it has to?

Method: the backward ops that a parameter of the activation order needs, and none before it, form a
*tag*; parameters that need no more op share one. Backward ops that no gradient needs form the last
tag, so that they delay none. The *end set* of a tag are its ops that none of the same tag needs
(they all update the tag's parameter); its *free set* are its ops that need none of the same tag.
Every op of the end set of a tag gets an edge to every op of the free set of the next one. Where
both sets have several ops, fewer edges do: one end waits for the others, and the free ops for it.

A given op order is cut into tags behind every op that completes a parameter; that op is the end
that waits for the others.

Guarantee: data dependencies and control edges together are acyclic, and every order they admit runs
tag after tag; so each gradient is ready when the activation order, or the given order, has it
ready. No edge can be left out: a path from an end leaves its tag at once and never returns, and all
that a free op of the next tag needs is in this tag or before, so only an edge leads from the one to
the other, and only an edge from one end to another. A pair with a data dependency gets none.

Complexity: O(n log n + m); at most as many edges as ops, twice.

Source: Hashemi et al., *Caramel* §4.1, stage 2. The paper adds the edges of all pairs, and leaves
open what becomes of ops that no parameter needs.
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
        All parameters, in the order in which `activation_order` wants them. In any other order
        tags still run one after the other, but a parameter that shares the tag of one that needs
        more ops can be ready at different times.

    Returns
    -------
    tuple of (int, int)
        Indices of backward ops: the second one is to wait for the first one.
    """
    return _edges_between(graph, _tags(graph, activation), hubs=False)


def edges_of_order(graph: Graph, backward: Sequence[int]) -> Edges:
    """Return the dependencies to add so that gradients are ready when a given op order has them.

    Parameters
    ----------
    graph : Graph
        The graph.
    backward : sequence of int
        Indices of the backward ops in the order in which they run.
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
    """Return the edges that make tags, topologically ordered, run one after the other.

    With `hubs` the last op of each tag but the last waits for all others of it.
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
        # What waits for the other ends of its tag waits for everything before them.
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
