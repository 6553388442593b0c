"""What a plan costs, and what is in memory when; rules of others, and what is refused."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost
from planner.families.fsdp import Mesh, Plan, Unit, check, evaluate
from planner.families.fsdp.baselines import BASELINES, fsdp2, one_unit, zero_3
from planner.families.fsdp.checker import peak_memory
from planner.families.fsdp.evaluation import peak_of
from planner.model.errors import BrokenConstraintError, InvalidPlanError
from tests.formats.refused import refused
from tests.fsdp.making import chain, followed, kept, one_mesh, plans, problems

CHAIN = chain(2, parameter_bytes=(4, 8), activation_bytes=(3, 5), meshes=[one_mesh(1, 1)])
TWICE = Plan(0, (Unit(0, 1, False, False, 0, 3), Unit(1, 2, False, False, 0, 2)))


def test_times_of_a_chain_gathered_twice() -> None:
    evaluation = evaluate(CHAIN, TWICE)
    # Gathers take 5 and 9. The second one ends at 14, before the first layer has been computed.
    assert [step.start_ns for step in evaluation.steps] == [5, 15, 34, 68]
    # The second gather of layer 1 waits for its forward pass (25 to 34). Its gradients leave at 54
    # and occupy the channel until 63, before the second gather of layer 0 (63 to 68).
    gathers = [transfer[1:] for transfer in evaluation.gathers]
    assert gathers == [(0, 0, 5), (5, 5, 14), (25, 25, 34), (54, 63, 68)]
    assert evaluation.iteration_ns == 88 + 5
    assert evaluation.exposed_ns == 93 - 60


def test_memory_of_a_chain_gathered_twice() -> None:
    evaluation = evaluate(CHAIN, TWICE)
    assert evaluation.state_bytes == 1 + 2
    levels = [(level.step, level.stage, level.moving) for level in evaluation.levels]
    assert levels == [
        (0, "wait", 4),
        (0, "copy", 8),
        (0, "compute", 4 + 8 + 3),  # with the buffer of the next
        (0, "end", 8 + 3),
        (1, "wait", 8 + 3),
        (1, "copy", 16 + 3),
        (1, "compute", 8 + 8),
        (1, "end", 8),
        (2, "wait", 8 + 8),
        (2, "copy", 16 + 8),
        (2, "compute", 8 + 8 + 8),  # parameters, gradients, activations
        (2, "end", 8 + 3),
        (2, "scatter", 8 + 8 + 3),  # gradients, and the buffer that they are copied into
        (3, "wait", 8 + 2 + 3 + 4),
        (3, "copy", 8 + 2 + 3 + 8),
        (3, "compute", 8 + 2 + 3 + 4 + 4),
        (3, "end", 8 + 2 + 4),
        (3, "scatter", 2 + 4 + 4),
    ]
    assert evaluation.peak_bytes == 3 + 24
    # The optimiser is stored by shares: a fourth of 35 is rounded up.
    assert chain(1, parameter_bytes=10, optimiser=Fraction(5, 2)).state_bytes(4) == 9


@pytest.mark.parametrize(
    ("own_links", "sums"),
    [
        # Gathers until 16, reduce-scatters until 24 and 32, sums behind each of these.
        (True, [(24, 30), (32, 38)]),
        # The first sum and the second reduce-scatter, half as fast: 6 ns of each until 36.
        (False, [(24, 36), (38, 44)]),
    ],
)
def test_sums_over_copies_have_a_channel_of_their_own(
    own_links: bool, sums: list[tuple[int, int]]
) -> None:
    own, other = AffineCost(0, Fraction(1)), AffineCost(0, Fraction(3, 2))
    costs = {"all_gather": own, "reduce_scatter": own, "all_reduce": other}
    mesh = Mesh(shards=2, replicas=2, **costs, own_links=own_links)
    problem = chain(2, forward_ns=0, backward_ns=0, parameter_bytes=8, meshes=[mesh])
    evaluation = evaluate(problem, Plan(0, kept(1, 2), 2))
    assert [transfer[2:] for transfer in evaluation.sums] == sums
    assert evaluation.iteration_ns == sums[-1][1]


@settings(max_examples=1200)
@given(st.data())
def test_times_and_memory_are_those_of_a_host_that_gives_commands(data: st.DataObject) -> None:
    problem = data.draw(problems(max_layers=6))
    plan = data.draw(plans(problem))
    check(problem, plan)
    evaluation = evaluate(problem, plan)
    assert evaluation.iteration_ns == followed(problem, plan)
    assert evaluation.peak_bytes == peak_of(problem, plan) == peak_memory(problem, plan)
    assert max(size for _, size in evaluation.memory) == evaluation.peak_bytes
    moments = [moment for moment, _ in evaluation.memory]
    assert moments == sorted(moments)


# ---
# What FSDP2 and DeepSpeed do, and what is refused.


def issues(plan: Plan) -> tuple[list[int], list[int | None]]:
    return [unit.forward_at for unit in plan.units], [unit.backward_at for unit in plan.units]


def test_fsdp2_prefetches_ahead_and_without_resharding_gathers_once() -> None:
    # Forward: behind the copy out of the unit before the last; backward: when the next one arrives,
    # and the last unit beside its own forward computation.
    assert issues(fsdp2(chain(4))) == ([0, 0, 0, 1], [6, 5, 4, 3])
    assert issues(BASELINES["fsdp2_ahead_2"](chain(5), 0)) == ([0, 0, 0, 0, 1], [7, 6, 5, 5, 4])

    assert issues(BASELINES["no_reshard"](chain(3), 0)) == ([0, 0, 0], [None] * 3)
    assert [unit[:3] for unit in one_unit(chain(3)).units] == [(0, 3, True)]

    # They take the blocks that people wrap.
    plan = fsdp2(chain(4, blocks=(0, 1, 3), tied=[(2, 3)]))
    assert [unit[:2] for unit in plan.units] == [(0, 1), (1, 4)]


def test_zero_3_keeps_what_is_used_again_soon_and_fetches_until_its_bucket_is_full() -> None:
    size = 4 * 200_000_000  # bytes of a unit; the last 3 of 5 are used again soon enough
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


FIRST, LAST = Unit(0, 1, False, False, 0, 5), Unit(2, 3, True, False, 1, None)
UNITS = FIRST, Unit(1, 2, False, True, 0, 4), LAST
FINE = Plan(0, UNITS)


def changed(place: int, **fields: Any) -> Plan:
    return Plan(0, (*UNITS[:place], UNITS[place]._replace(**fields), *UNITS[place + 1 :]))


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


def test_tied_layers_in_two_units_and_too_little_memory_by_a_byte_are_refused() -> None:
    problem = chain(3, checkpoint_bytes=(0, 1, 1))
    with refused(None, "share a parameter", InvalidPlanError):
        check(replace(problem, tied=[(0, 1)]), FINE)
    peak = evaluate(problem, FINE).peak_bytes
    check(problem.within(peak), FINE)
    with pytest.raises(BrokenConstraintError) as caught:
        check(problem.within(peak - 1), FINE)
    assert caught.value.binding == "memory_bytes"
