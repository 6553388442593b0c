"""Validity of a graph's dependences, and the graph queries of the family; O(n + m)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.errors import InvalidInputError

if TYPE_CHECKING:
    from planner.overlap.problem import Problem

__all__ = ["check_acyclic", "check_waits", "cycle_of", "followers", "producers_needed"]

_LOOKED_AT = 64
"""Nodes visited to find a path from a reader to a producer; without one, an edge is added."""


def followers(after: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the successors of each node, with repetitions as in `after`."""
    result: list[list[int]] = [[] for _ in after]
    for node, earlier in enumerate(after):
        for other in earlier:
            result[other].append(node)
    return result


def cycle_of(after: Sequence[Sequence[int]]) -> list[int]:
    """Return the nodes of a cycle, each after the next; empty if there is none."""
    missing = [len(earlier) for earlier in after]
    later = followers(after)
    free = [node for node, count in enumerate(missing) if not count]
    for node in free:
        for other in later[node]:
            missing[other] -= 1
            if not missing[other]:
                free.append(other)
    if len(free) == len(after):
        return []
    node = next(place for place, count in enumerate(missing) if count)
    seen: dict[int, int] = {}
    path: list[int] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = next(other for other in after[node] if missing[other])
    return path[seen[node] :]


def check_acyclic(after: Sequence[Sequence[int]], names: Sequence[str]) -> None:
    """Raise `InvalidInputError` if there is a cycle, or a node stands before one it needs."""
    cycle = cycle_of(after)
    if cycle:
        ring = " after ".join(names[node] for node in [*cycle[:8], cycle[0]])
        raise InvalidInputError("nodes", f"a cycle of {len(cycle)} nodes: {ring}")
    for node, earlier in enumerate(after):
        for number, other in enumerate(earlier):
            if other >= node:
                raise InvalidInputError(
                    f"nodes[{node}].after[{number}]",
                    f"{names[node]} stands before {names[other]}, which it needs",
                )


def check_waits(problem: "Problem") -> None:
    """Raise `InvalidInputError` if a wait does not follow its start, or a reader its producer."""
    for place, collective in enumerate(problem.collectives):
        if collective.start not in problem.nodes[collective.wait].after:
            raise InvalidInputError(
                f"collectives[{place}].wait",
                f"expected a node after node {collective.start}, which starts it",
            )
    for place, tensor in enumerate(problem.tensors):
        if tensor.producer is None:
            continue
        for number, reader in enumerate(tensor.readers):
            if reader <= tensor.producer:
                raise InvalidInputError(
                    f"tensors[{place}].readers[{number}]",
                    f"expected a node after node {tensor.producer}, which produces the tensor, "
                    f"got {reader}: a reader depends on the producer",
                )


def producers_needed(problem: "Problem") -> dict[int, tuple[int, ...]]:
    """Return, by reader, the producers of its tensors on which it does not depend yet.

    Some may be implied by other dependences: adding them changes nothing.
    """
    after = [node.after for node in problem.nodes]
    read: dict[int, dict[int, None]] = {}
    for tensor in problem.tensors:
        if tensor.producer is not None:
            for reader in tensor.readers:
                read.setdefault(reader, {})[tensor.producer] = None
    needed = {}
    for reader, producers in read.items():
        direct = set(after[reader])
        missing = [it for it in producers if it not in direct and not _depends(after, reader, it)]
        if missing:
            needed[reader] = tuple(missing)
    return needed


def _depends(after: Sequence[Sequence[int]], node: int, other: int) -> bool:
    """Return whether a search of few nodes shows that `node` depends on `other`."""
    looked, seen = [node], {node}
    for near in looked:
        if len(looked) + len(after[near]) > _LOOKED_AT:
            return False
        if other in after[near]:
            return True
        # Nodes are numbered in an order that respects dependences.
        new = {earlier for earlier in after[near] if earlier > other} - seen
        looked += sorted(new)
        seen |= new
    return False
