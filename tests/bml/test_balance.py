"""Lighter pieces where servers with fewer NICs aggregate, and the layout they make."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from planner.families.bml import (
    CheckerContext,
    Damage,
    Failures,
    Problem,
    Schedule,
    check,
    evaluate,
)
from planner.families.bml.evaluation import busiest_load
from planner.families.bml.methods import balanced
from planner.families.bml.reroute import detour
from planner.families.bml.schedule import FULL_WEIGHT
from planner.families.collectives.layout import EvenLayout, RangedLayout
from planner.model.network import Network
from planner.model.topologies import BCube
from tests.bml.simulator import simulate

LOST = Failures(nics=frozenset({(5, 1)}))


def test_products_beyond_64_bits_do_not_wrap() -> None:
    layout = RangedLayout((0, 2**19, 2**20), (64, 63), 2**60, 1)
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
    check(CheckerContext(bcube, damage.dead, damage.down), plan)
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
