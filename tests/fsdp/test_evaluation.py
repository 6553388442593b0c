"""What a plan costs, and what is in memory when."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost
from planner.families.fsdp import Mesh, Plan, Unit, check, evaluate
from planner.families.fsdp.checker import peak_memory
from planner.families.fsdp.evaluation import peak_of
from tests.fsdp.making import chain, followed, kept, one_mesh, plans, problems

CHAIN = chain(2, parameter_bytes=(4, 8), activation_bytes=(3, 5), meshes=[one_mesh(1, 1)])
TWICE = Plan(0, (Unit(0, 1, False, False, 0, 3), Unit(1, 2, False, False, 0, 2)))


def test_times_of_a_chain_gathered_twice() -> None:
    evaluation = evaluate(CHAIN, TWICE)
    # Gathers take 5 and 9. The second one ends at 14, before the first layer has been computed.
    assert [step.start_ns for step in evaluation.steps] == [5, 15, 34, 68]
    # The second gather of layer 1 waits for its forward pass (25 to 34). Its gradients leave at 54
    # and occupy the channel until 63, before the second gather of layer 0 (63 to 68).
    assert [transfer[1:] for transfer in evaluation.gathers] == [
        (0, 0, 5),
        (5, 5, 14),
        (25, 25, 34),
        (54, 63, 68),
    ]
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


def test_optimiser_is_stored_by_shares() -> None:
    problem = chain(1, parameter_bytes=10, optimiser=Fraction(5, 2))
    assert problem.state_bytes(4) == 9  # a fourth of 35, rounded up
