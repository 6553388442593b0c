"""The canonical mapping: which worker of a replica holds which segment of a layer.

Problem: segments (partition p of copy r) occupy distinct workers, and a worker with segments of
both layers fetches less; costs must depend on the last layer's choice only.

Rule: within each class of copies that share samples, segments of consecutive layers are matched
evenly, and matched segments share a worker; unmatched ones go to free workers in order. See
docs/yan.md, "Why the canonical mapping loses little".
Guarantee: before a fully connected layer no mapping makes the slowest segment fetch less, except
for rounding of unequal partitions; between convolutions matched bands overlap.
Complexity: O(P·R) a layer. Source: own; Yan et al. (KDD'15, "Optimizing segment-worker mapping")
follow the history greedily (`planner.yan.greedy`).
"""

from collections.abc import Sequence
from math import gcd

__all__ = ["LayerMapping", "canonical_mapping", "matched", "segment_at"]

LayerMapping = tuple[tuple[int, ...], ...]
"""Worker of partition p, copy r, as ``mapping[p][r]``."""


def matched(count: int, hosts: int) -> list[int | None]:
    """Return the host of each of `count` segments of a class with `hosts` hosts, or None."""
    if count <= hosts:
        return [segment * hosts // count for segment in range(count)]
    hosts_of: list[int | None] = [None] * count
    for host in range(hosts):
        hosts_of[host * count // hosts] = host
    return hosts_of


def segment_at(place: int, group: int, copies: int, classes: int) -> tuple[int, int]:
    """Return partition and copy of a place in the list of one class."""
    each = copies // classes
    return place // each, place % each * classes + group


def canonical_mapping(choices: Sequence[tuple[int, int]], workers: int) -> tuple[LayerMapping, ...]:
    """Return the mapping of every layer.

    Parameters
    ----------
    choices : sequence of (int, int)
        Partitions and copies of each layer, layer 0 first; their product is at most `workers`.
    workers : int
        Workers of the replica.
    """
    mappings: list[LayerMapping] = []
    for partitions, copies in choices:
        if not mappings:
            before: LayerMapping = ((),)
            old_copies = copies
        else:
            before, old_copies = mappings[-1], len(mappings[-1][0])
        classes = gcd(copies, old_copies)
        holding = {worker for row in before for worker in row}
        free = iter([worker for worker in range(workers) if worker not in holding])
        mapping = [[-1] * copies for _ in range(partitions)]
        hosts = len(before) * old_copies // classes if mappings else 0
        host_of = matched(partitions * copies // classes, hosts)
        unmatched = []
        for group in range(classes):
            for place, host in enumerate(host_of):
                p, r = segment_at(place, group, copies, classes)
                if host is None:
                    unmatched.append((p, r))
                else:
                    old_p, old_r = segment_at(host, group, old_copies, classes)
                    mapping[p][r] = before[old_p][old_r]
        for p, r in sorted(unmatched):
            mapping[p][r] = next(free)
        mappings.append(tuple(map(tuple, mapping)))
    return tuple(mappings)
