"""Whether a packing of spanning trees and the proof of its bound hold, however they were made.

A tree of N'-1 hops that joins all N' living servers spans them. The proof is checked by Prim's
algorithm over all hops.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from planner.families.bml import Damage
from planner.families.bml.packing import Packing, load_of, pack
from planner.families.bml.trees import Port
from planner.solving.deadline import NEVER
from tests.bml.networks import connected, hops_of, joined, links_left


def least_load(damage: Damage, **start: Any) -> Fraction:
    """Pack, check, and return the least load of a NIC, which the packing reaches."""
    packing = pack(damage, NEVER, **start)
    check_packing(damage, packing)
    assert packing.bound <= packing.load <= packing.bound * (1 + Fraction(1, 10**9))
    assert not packing.timed_out
    return packing.bound


def check_packing(damage: Damage, packing: Packing) -> None:
    """Assert that trees span what works, shares add up, and prices prove the bound."""
    links = links_left(damage.bcube, damage.failed)
    hops = set(hops_of(links))
    for tree in packing.trees:
        assert len(tree) == damage.living - 1
        assert {(min(one, other), max(one, other), level) for one, other, level in tree} <= hops
        assert not tree or connected(joined(tree))
        assert not tree or joined(tree).keys() == links.keys()
    assert len(packing.weights) == len(packing.trees)
    assert min(packing.weights) > 0
    assert sum(packing.weights) == 1
    assert packing.load == load_of(packing.trees, packing.weights)
    assert packing.bound == _proven(damage, dict(packing.prices))


def _proven(damage: Damage, prices: Mapping[Port, int]) -> Fraction:
    """Return the bound that prices prove; 0 where there are none."""
    bcube, dead, down = damage.bcube, damage.dead, damage.down
    assert all(price >= 0 for price in prices.values())
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
