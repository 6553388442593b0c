"""Whether a packing of spanning trees and the proof of its bound hold, however they were made.

A tree of N'-1 hops that joins all N' living servers spans them. The proof is checked by a cheapest
spanning tree of all hops.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree

from planner.families.bml import Damage
from planner.families.bml.packing import Packing, load_of, pack
from planner.families.bml.trees import Edge, Port
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
    hops = hops_of(links)
    for tree in packing.trees:
        assert len(tree) == damage.living - 1
        assert {(min(one, other), max(one, other), level) for one, other, level in tree} <= {*hops}
        assert not tree or connected(joined(tree))
        assert not tree or joined(tree).keys() == links.keys()
    assert len(packing.weights) == len(packing.trees)
    assert min(packing.weights) > 0
    assert sum(packing.weights) == 1
    assert packing.load == load_of(packing.trees, packing.weights)
    prices = dict(packing.prices)
    assert all(price >= 0 for price in prices.values())
    whole = sum(prices.values())  # 0 where nothing is proven
    assert packing.bound == (Fraction(least_tree(hops, prices), whole) if whole else 0)


def least_tree(hops: Sequence[Edge], prices: Mapping[Port, int]) -> int:
    """Return the price of a cheapest spanning tree, by scipy."""
    servers = sorted({end for one, other, _ in hops for end in (one, other)})
    dense = np.zeros((len(servers), len(servers)))
    for one, other, level in hops:
        # 1 more a hop, as scipy takes a 0 for no hop.
        price = prices.get((one, level), 0) + prices.get((other, level), 0) + 1
        dense[servers.index(one), servers.index(other)] = price
    total = minimum_spanning_tree(dense).sum()
    assert total < 2**53, "floats are no longer exact"
    return int(total) - (len(servers) - 1)
