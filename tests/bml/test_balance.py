"""Lighter pieces where servers with fewer NICs aggregate, and the layout they make."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.bml import Damage, Failures, Ground, Problem, Schedule, check, evaluate
from planner.families.bml.evaluation import busiest_load
from planner.families.bml.methods import balanced
from planner.families.bml.reroute import detour
from planner.families.bml.schedule import FULL_WEIGHT
from planner.families.collectives.layout import EvenLayout, RangedLayout
from planner.model.network import Network
from planner.model.topologies import BCube
from tests.bml.simulator import simulate

LOST = Failures(nics=frozenset({(5, 1)}))
weights = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 64)), min_size=1, max_size=6)


def ranged(ranges: list[tuple[int, int]], elements: int, element_bytes: int) -> RangedLayout:
    firsts = [0]
    for count, _ in ranges:
        firsts.append(firsts[-1] + count)
    return RangedLayout(
        tuple(firsts), tuple(weight for _, weight in ranges), elements, element_bytes
    )


@given(weights.filter(lambda ranges: any(weight for _, weight in ranges)), st.data())
def test_ranges_share_by_weight(ranges: list[tuple[int, int]], data: st.DataObject) -> None:
    elements = data.draw(st.integers(0, 1000) | st.integers(2**50, 2**53))
    layout = ranged(ranges, elements, 4)
    each = [weight for count, weight in ranges for _ in range(count)]
    total = sum(each)
    starts = [layout.start(piece) for piece in range(len(each) + 1)]
    assert starts == [elements * sum(each[:piece]) // total * 4 for piece in range(len(each) + 1)]
    assert layout.starts(np.arange(len(each) + 1)).tolist() == starts
    assert starts[-1] == 4 * elements
    for piece, (start, stop) in enumerate(pairwise(starts)):
        assert layout.span(piece, 1) == stop - start
        assert abs(Fraction(stop - start, 4) - Fraction(elements * each[piece], total)) < 1


def test_products_beyond_64_bits_do_not_wrap() -> None:
    layout = ranged([(2**19, 64), (2**19, 63)], 2**60, 1)
    pieces = np.array([0, 1, 2**19, 2**20 - 1, 2**20])
    assert layout.starts(pieces).tolist() == [layout.start(piece) for piece in pieces.tolist()]


@pytest.mark.parametrize(("n", "k"), [(3, 3), (2, 4), (4, 3)])
def test_the_weight_is_the_best_of_all(n: int, k: int) -> None:
    damage = Damage(BCube(n, k), LOST)
    plan = detour(damage)
    chosen = balanced(plan, damage)
    light = chosen.light
    assert light
    loads = {
        weight: busiest_load(replace(plan, light=light, light_weight=weight))
        for weight in range(FULL_WEIGHT + 1)
    }
    assert loads[FULL_WEIGHT] == busiest_load(plan)
    assert busiest_load(chosen) == min(loads.values()) < busiest_load(plan)


@pytest.mark.parametrize("failed", [LOST, Failures(switches=frozenset({(0, 2)}))])
@pytest.mark.parametrize("rounds", [1, 3])
def test_its_price_is_that_of_its_transfers(failed: Failures, rounds: int) -> None:
    bcube = BCube(3, 3)
    damage = Damage(bcube, failed)
    plan = replace(balanced(detour(damage), damage), rounds=rounds)
    assert plan.light_weight < FULL_WEIGHT
    check(Ground(bcube, damage.dead, damage.down), plan)
    for size in (7, 4321):
        network = Network(Fraction(10**9, 7), 3, Fraction(1, 3))
        problem = Problem(bcube, network, 4 * size, element_bytes=4, failed=failed)
        assert evaluate(problem, plan).time_ns == simulate(problem, plan).time_ns


def test_nothing_to_gain_with_two_levels_or_without_lost_nics() -> None:
    for bcube, failed in (
        (BCube(4, 2), LOST),
        (BCube(3, 3), Failures(servers=frozenset({4}))),
    ):
        damage = Damage(bcube, failed)
        plan = detour(damage)
        assert balanced(plan, damage) == plan


def test_if_all_pieces_are_light_none_is() -> None:
    """Two opposite servers of BCube(2, 3) aggregate one half of all pieces each."""
    damage = Damage(BCube(2, 3), Failures(nics=frozenset({(0, 0), (7, 1)})))
    plan = detour(damage)
    assert balanced(plan, damage) == plan


def test_equal_weights_are_the_even_layout() -> None:
    plan = Schedule(BCube(2, 2), light=((0, 2),))
    assert isinstance(plan.layout(100, 1), EvenLayout)
    assert plan.total_weight == 8 * FULL_WEIGHT
