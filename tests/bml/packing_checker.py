"""Whether a packing of spanning trees and the proof of its bound hold, however they were made.

A tree of N'-1 hops that joins all N' living servers spans them. The proof is checked by Prim's
algorithm over all hops.
"""

from collections.abc import Mapping
from fractions import Fraction

from planner.families.bml.packing import Packing, load_of
from planner.families.bml.trees import Port, Tree
from planner.model.errors import InvalidPlanError
from planner.model.topologies import BCube


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
