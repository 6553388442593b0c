"""Whether a packing of spanning trees and the proof of its bound hold, however they were made.

A tree of N'-1 hops that joins all N' living servers spans them. The proof is checked by Prim's
algorithm over all hops.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from planner.families.bml import Damage
from planner.families.bml.packing import Packing, load_of, pack
from planner.families.bml.trees import Port, Tree
from planner.model.errors import InvalidPlanError
from planner.solving.deadline import NEVER


def least_load(damage: Damage, **start: Any) -> Fraction:
    """Pack, check, and return the least load of a NIC, which the packing reaches."""
    packing = pack(damage, NEVER, **start)
    check_packing(damage, packing)
    assert packing.bound <= packing.load <= packing.bound * (1 + Fraction(1, 10**9))
    assert not packing.timed_out
    return packing.bound


def check_packing(damage: Damage, packing: Packing) -> None:
    """Raise an InvalidPlanError at the first tree, weight or number that is wrong."""
    if len(packing.trees) != len(packing.weights):
        raise InvalidPlanError("weights", f"expected {len(packing.trees)}")
    for number, tree in enumerate(packing.trees):
        _check_tree(damage, tree, f"trees[{number}]")
    for number, weight in enumerate(packing.weights):
        if weight <= 0:
            raise InvalidPlanError(f"weights[{number}]", f"expected a share > 0, got {weight}")
    if sum(packing.weights) != 1:
        raise InvalidPlanError("weights", f"expected a sum of 1, got {sum(packing.weights)}")
    load = load_of(packing.trees, packing.weights)
    if packing.load != load:
        raise InvalidPlanError("load", f"expected {load}, got {packing.load}")
    bound = _proven(damage, dict(packing.prices))
    if packing.bound != bound:
        raise InvalidPlanError("bound", f"expected {bound} by the prices, got {packing.bound}")


def _check_tree(damage: Damage, tree: Tree, path: str) -> None:
    bcube = damage.bcube
    if len(tree) != damage.living - 1:
        raise InvalidPlanError(path, f"expected {damage.living - 1} hops, got {len(tree)}")
    part = {server: server for server in range(bcube.servers) if server not in damage.dead}
    for number, (first, second, level) in enumerate(tree):
        place = f"{path}[{number}]"
        for server in (first, second):
            if server not in part or (server, level) in damage.down:
                raise InvalidPlanError(place, f"expected usable NICs, got {server, level}")
        if not 0 <= level < bcube.k or second not in bcube.neighbours(first, level):
            raise InvalidPlanError(place, f"no hop from {first} to {second} on level {level}")
        old, new = part[second], part[first]
        if old == new:
            raise InvalidPlanError(place, f"expected a tree, but {first} and {second} are joined")
        part = {server: new if its == old else its for server, its in part.items()}


def _proven(damage: Damage, prices: Mapping[Port, int]) -> Fraction:
    """Return the bound that prices prove; 0 where there are none."""
    bcube, dead, down = damage.bcube, damage.dead, damage.down
    if any(price < 0 for price in prices.values()):
        raise InvalidPlanError("prices", "expected prices >= 0")
    if not sum(prices.values()) or damage.living < 2:
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
