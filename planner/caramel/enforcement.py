"""Control edges that leave only one order of gradients (Caramel's stage 2).

Problem: a framework that runs ready ops in any order need not follow the activation order. Which
dependencies must be added so that it has to?

Method: the backward ops that a parameter of the activation order needs, and none before it, form a
*tag*; parameters that need no more op share one. Backward ops that no gradient needs form the last
tag, so that they delay none. The *end set* of a tag are its ops that none of the same tag needs
(they all update the tag's parameter); its *free set* are its ops that need none of the same tag.
Every op of the end set of a tag gets an edge to every op of the free set of the next one.

Guarantee: data dependencies and control edges together are acyclic, and every order they admit runs
tag after tag; so with the greedy activation order each gradient is ready when `backward_order` has
it ready. No edge can be left out: a path from an end (u) leaves its tag at once and never returns,
and all that a free op (v) of the next tag needs is in this tag or before, so only an edge leads
from u to v. A pair with a data dependency needs no other edge and gets none.

Complexity: O(n log n + m + edges).

Source: Hashemi et al., *Caramel* §4.1, stage 2. The paper adds the edges of all pairs, and leaves
open what becomes of ops that no parameter needs.
"""

from collections.abc import Sequence
from itertools import pairwise

from planner.caramel.activation import activation_steps
from planner.graphs import Graph

__all__ = ["control_edges", "edges_of_order"]


def control_edges(graph: Graph, activation: Sequence[int]) -> tuple[tuple[int, int], ...]:
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
    tag: dict[int, int] = {}
    tags = _tags(graph, activation)
    for number, ops in enumerate(tags):
        tag |= dict.fromkeys(ops, number)
    edges: list[tuple[int, int]] = []
    ends: list[int] = []
    for number, ops in enumerate(tags):
        needed = {op: graph.predecessors[op] for op in ops}
        free = [op for op in ops if all(tag.get(one) != number for one in needed[op])]
        edges += [(end, op) for end in ends for op in free if end not in needed[op]]
        ends = [op for op in ops if all(tag[one] != number for one in graph.successors[op])]
    return tuple(edges)


def edges_of_order(graph: Graph, backward: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the dependencies to add so that gradients are completed as in a given op order.

    For an order that is no activation order: only what completes a parameter is ordered, the other
    ops may still run earlier or later than in `backward`. Each parameter waits in its last updater
    for its other ones, and for the parameter before it. Edges that dependencies imply are left
    out. O(n + m + edges): each search stays between two updaters that follow each other.

    Parameters
    ----------
    graph : Graph
        The graph.
    backward : sequence of int
        Indices of the backward ops in the order in which they run.
    """
    place = {op: rank for rank, op in enumerate(backward)}
    waits: dict[int, set[int]] = {}
    for updaters in graph.updaters:
        last = max(updaters, key=place.__getitem__)
        waits.setdefault(last, set()).update(op for op in updaters if op != last)
    lasts = sorted(waits, key=place.__getitem__)
    for one, two in pairwise(lasts):
        waits[two].add(one)
    edges: list[tuple[int, int]] = []
    added: dict[int, list[int]] = {}
    for last in lasts:
        # The latest first: through it the earlier ones may be waited for already.
        for op in sorted(waits[last], key=place.__getitem__, reverse=True):
            if not _waits_for(graph, added, last, op, place):
                edges.append((op, last))
                added.setdefault(last, []).append(op)
    return tuple(edges)


def _waits_for(
    graph: Graph, added: dict[int, list[int]], op: int, other: int, place: dict[int, int]
) -> bool:
    """Return whether `op` comes after `other` by dependencies and the edges added."""
    seen = {op}
    stack = [op]
    while stack:
        one = stack.pop()
        for needed in (*graph.predecessors[one], *added.get(one, ())):
            if needed == other:
                return True
            if needed not in seen and place.get(needed, -1) > place[other]:
                seen.add(needed)
                stack.append(needed)
    return False


def _tags(graph: Graph, activation: Sequence[int]) -> list[list[int]]:
    """Return the backward ops of each tag, in the stable topological order."""
    backward = graph.pass_order("backward")
    known = set(backward)
    tags = [[op for op in step if op in known] for step in activation_steps(graph, activation)]
    rest = known.difference(*tags)
    tags.append([op for op in backward if op in rest])
    return [ops for ops in tags if ops]
