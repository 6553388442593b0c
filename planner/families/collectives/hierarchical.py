"""Hierarchical all-reduce: reduce-scatter within groups, then among groups, and all the way back.

On a Fat-Tree, servers of an edge switch exchange directly; then servers in the same place of the
edges of a pod exchange their 1/g1; then those of the pods their 1/(g1·g2). If N does not fill the
tree, group sizes are the largest divisors of N that fit the switches. On a BCube it is a single
thread of BML: one level, and so one NIC, at a time.
Guarantee: volume (g1-1)/g1 + (g2-1)/(g1·g2) + (g3-1)/N each way, which telescopes to 2(N-1)/N: with
one NIC it gains nothing over two direct steps. Two steps per level of more than one member.
Complexity: O(N^(1/3)) to find the groups.
Source: Wang et al., "BML", NeurIPS 2018, section 3.3.
"""

from collections.abc import Sequence
from fractions import Fraction

from planner.families.collectives.cost import Collective, Cost, Fabric, on_bcube, on_fabric
from planner.families.collectives.staged import staged
from planner.families.collectives.symmetric import SymmetricProgram
from planner.model.network import scattered
from planner.model.topologies import BCube, FatTree


def groups_of(fabric: Fabric) -> tuple[int, int, int]:
    """Return the group sizes at the edge, in a pod and over the cores; their product is N."""
    return tree_groups(fabric.servers, fabric.tree)


def tree_groups(servers: int, tree: FatTree) -> tuple[int, int, int]:
    """Return the sizes of groups at the edge of a tree, in a pod and over the cores."""
    edge, pod, _ = tree.groups
    first = _largest_divisor(servers, edge)
    rest = servers // first
    second = _largest_divisor(rest, pod)
    return first, second, rest // second


def hierarchical_cost(groups: Sequence[int]) -> Cost:
    """Return the cost of direct exchanges in groups of these sizes, innermost first."""
    volume, below = Fraction(0), 1
    for size in groups:
        volume += scattered(size) / below
        below *= size
    return Cost(steps=2 * sum(size > 1 for size in groups), volume=2 * volume, reduced=volume)


def hierarchical_bcube(bcube: BCube) -> Collective:
    """Return the cost on a BCube."""
    return on_bcube("hierarchical", bcube, 2 * bcube.k, 2 * scattered(bcube.servers))


def hierarchical_fattree(fabric: Fabric) -> Collective:
    """Return the cost on a Fat-Tree."""
    cost = hierarchical_cost(groups_of(fabric))
    return on_fabric("hierarchical", fabric, cost.steps, cost.volume, cost.reduced)


def hierarchical_program(groups: Sequence[int]) -> SymmetricProgram:
    """Return the program of direct exchanges in groups of these sizes, innermost first."""
    name = f"hierarchical({', '.join(map(str, groups))})"
    return staged(name, groups, [range(len(groups))])


def hierarchical_bcube_program(bcube: BCube) -> SymmetricProgram:
    """Return the program on a BCube, level by level."""
    name = f"hierarchical_bcube({bcube.n}, {bcube.k})"
    levels = range(bcube.k)
    return staged(name, (bcube.n,) * bcube.k, [levels], links=bcube.k, wire=bcube.wire)


def _largest_divisor(number: int, most: int) -> int:
    return next(size for size in range(most, 0, -1) if number % size == 0)
