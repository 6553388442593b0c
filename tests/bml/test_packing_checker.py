"""Packings that are right, wrong, or of a dead server: what the checker says."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from planner.families.bml.packing import Packing, load_of, pack
from planner.families.bml.trees import Edge
from planner.model.errors import InvalidPlanError
from planner.model.topologies import BCube
from tests.bml.packing_checker import check_packing
from tests.bml.test_packing import NO_LIMIT, NOTHING, surviving

HALF = Fraction(1, 2)
DAMAGE = BCube(2, 2), NOTHING, frozenset([(0, 1)])
PATH = ((0, 1, 0), (1, 3, 1), (2, 3, 0))


def proven(*trees: tuple[Edge, ...], **changes: Any) -> Packing:
    weights = tuple(Fraction(1, len(trees)) for _ in trees)
    packing = Packing(
        trees, weights, Fraction(1), Fraction(1), timed_out=False, prices=(((0, 0), 1),)
    )
    return replace(packing, **changes)


def test_a_right_packing_passes() -> None:
    check_packing(*DAMAGE, proven(PATH))
    check_packing(*DAMAGE, proven(PATH, bound=Fraction(0), prices=()))
    # Both NICs of a hop count: at these prices a tree costs 3·2, of 6.
    flat = tuple((nic, 1) for nic in [(0, 0), (1, 0), (1, 1), (2, 0), (3, 0), (3, 1)])
    check_packing(*DAMAGE, proven(PATH, prices=flat))


@pytest.mark.parametrize(
    ("packing", "path"),
    [
        (proven(PATH, weights=()), "weights"),
        (proven(PATH, weights=(HALF,)), "weights"),
        (proven(PATH, PATH, weights=(2 * HALF, 0 * HALF)), "weights[1]"),
        (proven(PATH, PATH, weights=(3 * HALF, -HALF)), "weights[1]"),
        (proven(PATH, load=HALF), "load"),
        (proven(PATH, bound=HALF), "bound"),
        (proven(PATH, prices=(((0, 0), 2), ((0, 1), -1))), "prices"),
        (proven(PATH, PATH[:2]), "trees[1]"),
        (proven((*PATH, PATH[0])), "trees[0]"),
        (proven((PATH[0], PATH[0], PATH[2])), "trees[0][1]"),
        (proven((PATH[0], PATH[1], (0, 2, 1))), "trees[0][2]"),  # NIC down
        (proven((PATH[0], PATH[1], (2, 4, 0))), "trees[0][2]"),  # no server
        (proven((PATH[0], PATH[1], (1, 2, 0))), "trees[0][2]"),  # not on a switch
        (proven((PATH[0], PATH[1], (2, 3, 1))), "trees[0][2]"),  # on another level
        (proven((PATH[0], PATH[1], (2, 3, 2))), "trees[0][2]"),  # no level
    ],
)
def test_wrong_packings_are_found(packing: Packing, path: str) -> None:
    with pytest.raises(InvalidPlanError) as caught:
        check_packing(*DAMAGE, packing)
    assert caught.value.path == path


def test_a_dead_server_takes_no_part() -> None:
    packing = pack(surviving(BCube(3, 2)), NO_LIMIT)
    with pytest.raises(InvalidPlanError, match="expected 7 hops"):
        check_packing(BCube(3, 2), frozenset([0]), NOTHING, packing)
    tree = tuple(hop for hop in packing.trees[0] if hop != packing.trees[0][-1])
    alone = replace(packing, trees=(tree,), weights=(Fraction(1),))
    touched = tree[0][0]
    with pytest.raises(InvalidPlanError, match="living"):
        check_packing(BCube(3, 2), frozenset([touched]), NOTHING, alone)


def test_load_of_two_trees() -> None:
    star = ((0, 1, 0), (0, 2, 1), (1, 3, 1))
    assert load_of([PATH, star], [Fraction(1, 3), Fraction(2, 3)]) == 1
    assert load_of([((0, 1, 0), (0, 2, 0), (1, 3, 0))], [Fraction(1)]) == 2
    assert load_of([((0, 2, 0), (1, 2, 0))], [Fraction(1)]) == 2


def test_a_cycle_is_no_tree() -> None:
    cycle = (0, 1, 0), (1, 2, 0), (0, 2, 0)
    with pytest.raises(InvalidPlanError, match="joined") as caught:
        check_packing(BCube(4, 1), NOTHING, NOTHING, proven(cycle))
    assert caught.value.path == "trees[0][2]"
