"""Spanning trees of least price, against all others; and few trees, made one after the other."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree

from planner.families.bml.packing import few_trees, pack
from planner.families.bml.trees import SurvivingNetwork
from planner.model.topologies import BCube
from planner.solving.deadline import Deadline
from tests.bml.packing_checker import check_packing
from tests.bml.test_packing import (
    LARGER,
    NO_LIMIT,
    Damage,
    damages,
    hops_left,
    single_failures,
    spans,
    surviving,
    ways,
)


@settings(max_examples=80)
@given(damages(LARGER), st.data())
def test_spanning_trees_are_cheapest(damage: Damage, data: st.DataObject) -> None:
    network = SurvivingNetwork(surviving(*damage))
    prices = data.draw(
        st.lists(st.integers(0, 9), min_size=len(network.nics), max_size=len(network.nics))
    )
    root = data.draw(st.integers(0, len(network.servers) - 1))
    tree, cost = network.tree(prices, root)
    price = dict(zip(network.nics, prices, strict=True))
    place = {server: number for number, server in enumerate(network.servers)}
    dense = np.zeros((len(place), len(place)))
    for one, other, level in hops_left(damage):
        # 1 more a hop, as scipy takes a 0 for no hop.
        dense[place[one], place[other]] = price[one, level] + price[other, level] + 1
    hops = len(place) - 1
    assert cost == minimum_spanning_tree(dense).sum() - hops
    assert spans(network.servers, tree)
    assert len(tree) == hops
    degrees = network.degrees(tree)
    assert sum(a * b for a, b in zip(degrees, prices, strict=True)) == cost
    assert sum(degrees) == 2 * hops


@settings(max_examples=60)
@given(damages(LARGER), st.data())
def test_equal_prices_give_trees_of_shortest_ways(damage: Damage, data: st.DataObject) -> None:
    network = SurvivingNetwork(surviving(*damage))
    root = data.draw(st.integers(0, len(network.servers) - 1))
    tree, _ = network.tree([1] * len(network.nics), root)
    start = network.servers[root]
    assert ways(start, tree) == ways(start, hops_left(damage))


FAILED_ONCE = [
    failures for n, k in ((3, 2), (4, 2), (2, 3)) for failures in single_failures(BCube(n, k))
]


@pytest.mark.parametrize("damage", FAILED_ONCE[::7])
def test_few_trees_are_a_packing_not_far_from_the_best(damage: Damage) -> None:
    few = few_trees(surviving(*damage), 64, NO_LIMIT)
    check_packing(*damage, few)
    best = pack(surviving(*damage), NO_LIMIT)
    assert few.bound <= best.bound <= few.load < best.load * Fraction(5, 4)
    assert not few.timed_out
    hasty = few_trees(surviving(*damage), 64, Deadline(1e-9))
    check_packing(*damage, hasty)
    assert len(hasty.trees) == 1
