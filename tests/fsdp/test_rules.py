"""What FSDP2 and DeepSpeed do, and what is refused."""

from fractions import Fraction
from typing import Any

import pytest

from planner import AffineCost
from planner.families.fsdp import Mesh, Plan, Unit, check, evaluate
from planner.families.fsdp.baselines import BASELINES, fsdp2, one_unit, zero_3
from planner.model.errors import BrokenConstraintError, InvalidPlanError
from tests.formats.refused import refused
from tests.fsdp.making import chain, one_mesh


def issues(plan: Plan) -> tuple[list[int], list[int | None]]:
    return [unit.forward_at for unit in plan.units], [unit.backward_at for unit in plan.units]


def test_fsdp2_prefetches_one_ahead() -> None:
    # Forward: behind the copy out of the unit before the last; backward: when the next one arrives,
    # and the last unit beside its own forward computation.
    assert issues(fsdp2(chain(4))) == ([0, 0, 0, 1], [6, 5, 4, 3])
    assert issues(BASELINES["fsdp2_ahead_2"](chain(5), 0)) == ([0, 0, 0, 0, 1], [7, 6, 5, 5, 4])


def test_fsdp2_without_resharding_gathers_once() -> None:
    assert issues(BASELINES["no_reshard"](chain(3), 0)) == ([0, 0, 0], [None] * 3)
    assert [unit[:3] for unit in one_unit(chain(3)).units] == [(0, 3, True)]


def test_rules_take_the_blocks_that_people_wrap() -> None:
    plan = fsdp2(chain(4, blocks=(0, 1, 3), tied=[(2, 3)]))
    assert [unit[:2] for unit in plan.units] == [(0, 1), (1, 4)]


def test_zero_3_keeps_what_is_used_again_soon_and_fetches_until_its_bucket_is_full() -> None:
    size = 4 * 200_000_000  # so many elements: 5 units, of which the last 3 are used again in time
    plan = zero_3(chain(5, parameter_bytes=size))
    assert [unit.keep for unit in plan.units] == [False, False, True, True, True]
    plan = zero_3(chain(5, parameter_bytes=4 * 20_000_000))
    # With each step until 50,000,000 elements are on their way: three units.
    assert [unit.forward_at for unit in plan.units] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"backward_ns": (10, 10)}, "backward_ns"),
        ({"parameter_bytes": (40, 0, 40)}, "parameter_bytes[1]"),
        ({"checkpoint_bytes": (5, 6, 5)}, "checkpoint_bytes[1]"),
        ({"channels": "three"}, "channels"),
        ({"tied": [(0, 3)]}, "tied[0][1]"),
        ({"tied": [(0,)]}, "tied[0]"),
        ({"meshes": []}, "meshes"),
        ({"meshes": [one_mesh(0, 1, shards=4), one_mesh(0, 1, shards=2)]}, "meshes[1]"),
        ({"meshes": [one_mesh(2**61, 1)]}, "meshes[0].all_gather"),
        ({"names": ("a", "b")}, "names"),
        ({"blocks": (1,)}, "blocks[0]"),
        ({"blocks": (0, 2, 2)}, "blocks[2]"),
    ],
)
def test_problems_that_mean_nothing(change: dict[str, Any], path: str) -> None:
    with refused(path, ""):
        chain(3, **change)


def test_meshes_that_mean_nothing() -> None:
    cost = AffineCost(0, Fraction(1))
    with refused(None, "replicas"):
        Mesh(shards=2, replicas=2, all_gather=cost, reduce_scatter=cost)
    with refused(None, "none with one replica"):
        Mesh(shards=2, all_gather=cost, reduce_scatter=cost, all_reduce=cost)


UNITS = (
    Unit(0, 1, False, False, 0, 5),
    Unit(1, 2, False, True, 0, 4),
    Unit(2, 3, True, False, 1, None),
)
FINE = Plan(0, UNITS)


def changed(place: int, **fields: Any) -> Plan:
    units = list(UNITS)
    units[place] = units[place]._replace(**fields)
    return Plan(0, tuple(units))


@pytest.mark.parametrize(
    ("plan", "path"),
    [
        (Plan(1, UNITS), "mesh"),
        (Plan(0, UNITS, buffers=0), "buffers"),
        (Plan(0, UNITS, buffers=len(UNITS) + 1), "buffers"),
        (Plan(0, UNITS[:2]), "units"),
        (changed(1, start=0), "units[1]"),
        (changed(2, start=3), "units[2]"),
        (changed(2, stop=4), "units[2]"),
        (changed(0, recompute=True), "units[0].recompute"),
        (changed(1, forward_at=2), "units[1].forward_at"),
        (changed(1, forward_at=-1), "units[1].forward_at"),
        (changed(2, keep=False), "units[2].backward_at"),
        (changed(2, keep=False, backward_at=1), "units[2].backward_at"),
        (changed(2, backward_at=3), "units[2].backward_at"),
        (changed(1, backward_at=1), "units[1].backward_at"),
        (changed(0, backward_at=3), "units[0].backward_at"),
        (changed(0, backward_at=6), "units[0].backward_at"),
    ],
)
def test_plans_that_are_none(plan: Plan, path: str) -> None:
    problem = chain(3, activation_bytes=(0, 5, 5), checkpoint_bytes=(0, 1, 1))
    check(problem, FINE)
    with refused(path, "", InvalidPlanError):
        check(problem, plan)


def test_tied_layers_in_two_units() -> None:
    problem = chain(3, checkpoint_bytes=(0, 1, 1), tied=[(0, 1)])
    with refused(None, "share a parameter", InvalidPlanError):
        check(problem, FINE)


def test_too_little_memory_by_a_byte() -> None:
    problem = chain(3, checkpoint_bytes=(0, 1, 1))
    peak = evaluate(problem, FINE).peak_bytes
    check(problem.within(peak), FINE)
    with pytest.raises(BrokenConstraintError) as caught:
        check(problem.within(peak - 1), FINE)
    assert caught.value.binding == "memory_bytes"
