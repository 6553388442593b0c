"""A fractional packing of spanning trees in a BCube: what it is, its load, its checker.

Problem: say what a packing costs, and whether it and the proof of its bound hold, without knowing
how it was made.

Method: loads are added up in fractions. A tree of N'-1 hops that joins all N' living servers
spans them. The proof is checked by Prim's algorithm over all hops.

Complexity: O(trees·N'), and O(N'² + k·n·N') for the proof.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from planner.bml.spanning import Port, Tree
from planner.errors import InvalidPlanError
from planner.topologies import BCube

__all__ = ["Packing", "check_packing", "load_of"]


@dataclass(frozen=True, slots=True)
class Packing:
    """Spanning trees of the living servers with the share of the gradient each carries.

    Attributes
    ----------
    trees : tuple of Tree
        Spanning trees; each share is summed along its tree and broadcast back along it.
    weights : tuple of Fraction
        Their shares, above 0, of sum 1.
    load : Fraction
        Largest load of a NIC in one direction, in gradients, for exactly these weights.
    bound : Fraction
        Proven bound on the load of every packing.
    timed_out : bool
        Whether the deadline cut in.
    prices : tuple of (Port, int)
        Proof of the bound: it is what a minimum spanning tree costs at these prices, divided by
        their sum. NICs which are not named have price 0.
    """

    trees: tuple[Tree, ...]
    weights: tuple[Fraction, ...]
    load: Fraction
    bound: Fraction
    timed_out: bool
    prices: tuple[tuple[Port, int], ...] = ()


def load_of(trees: Sequence[Tree], weights: Sequence[Fraction]) -> Fraction:
    """Return the largest load of a NIC: the sum of the weights of the hops that use it."""
    unit = lcm(*(weight.denominator for weight in weights))
    loads: dict[Port, int] = {}
    for tree, weight in zip(trees, weights, strict=True):
        share = weight.numerator * (unit // weight.denominator)
        for first, second, level in tree:
            loads[first, level] = loads.get((first, level), 0) + share
            loads[second, level] = loads.get((second, level), 0) + share
    return Fraction(max(loads.values(), default=0), unit)


def check_packing(
    bcube: BCube, dead: frozenset[int], down: frozenset[Port], packing: Packing
) -> None:
    """Raise an error unless a packing, its load and the proof of its bound are right.

    Parameters
    ----------
    bcube : BCube
        The network without failures.
    dead : frozenset of int
        Servers that have failed.
    down : frozenset of (int, int)
        NICs (server, level) that have failed.
    packing : Packing
        What to check.

    Raises
    ------
    InvalidPlanError
        At the first tree, weight or number that is wrong.
    """
    if len(packing.trees) != len(packing.weights):
        raise InvalidPlanError(
            "weights",
            f"expected one for each of {len(packing.trees)} trees, got {len(packing.weights)}",
        )
    for number, tree in enumerate(packing.trees):
        _check_tree(bcube, dead, down, tree, f"trees[{number}]")
    for number, weight in enumerate(packing.weights):
        if weight <= 0:
            raise InvalidPlanError(f"weights[{number}]", f"expected a share > 0, got {weight}")
    if sum(packing.weights) != 1:
        raise InvalidPlanError("weights", f"expected a sum of 1, got {sum(packing.weights)}")
    load = load_of(packing.trees, packing.weights)
    if packing.load != load:
        raise InvalidPlanError("load", f"expected {load}, got {packing.load}")
    bound = _proven(bcube, dead, down, dict(packing.prices))
    if packing.bound != bound:
        raise InvalidPlanError("bound", f"expected {bound} by the prices, got {packing.bound}")


def _check_tree(
    bcube: BCube, dead: frozenset[int], down: frozenset[Port], tree: Tree, path: str
) -> None:
    living = bcube.servers - len(dead)
    if len(tree) != living - 1:
        raise InvalidPlanError(path, f"expected {living - 1} hops, got {len(tree)}")
    part = {server: {server} for server in range(bcube.servers) if server not in dead}
    for number, (first, second, level) in enumerate(tree):
        place = f"{path}[{number}]"
        for server in (first, second):
            if server not in part:
                raise InvalidPlanError(place, f"expected living servers, got {server}")
            if (server, level) in down:
                raise InvalidPlanError(place, f"expected usable NICs, got {server, level}")
        if not 0 <= level < bcube.k or second not in bcube.neighbours(first, level):
            raise InvalidPlanError(
                place,
                f"expected two servers on a switch of level {level}, got {first} and {second}",
            )
        if part[first] is part[second]:
            raise InvalidPlanError(place, f"expected a tree, but {first} and {second} are joined")
        small, large = sorted((part[first], part[second]), key=len)
        large |= small
        for server in small:
            part[server] = large


def _proven(
    bcube: BCube, dead: frozenset[int], down: frozenset[Port], prices: Mapping[Port, int]
) -> Fraction:
    """Return the bound that prices prove; 0 where there are none."""
    for (server, level), price in prices.items():
        if price < 0:
            raise InvalidPlanError(
                "prices", f"expected prices >= 0, got {price} at {server, level}"
            )
    if not sum(prices.values()):
        return Fraction(0)
    outside = [server for server in range(bcube.servers) if server not in dead]
    nearest: dict[int, int] = {}
    cost, newest = 0, outside.pop(0)
    while outside:
        for level in range(bcube.k):
            if (newest, level) in down:
                continue
            for server in bcube.neighbours(newest, level):
                if server not in dead and (server, level) not in down:
                    hop = prices.get((newest, level), 0) + prices.get((server, level), 0)
                    nearest[server] = min(hop, nearest.get(server, hop))
        newest = min((server for server in outside if server in nearest), key=nearest.__getitem__)
        outside.remove(newest)
        cost += nearest[newest]
    return Fraction(cost, sum(prices.values()))
