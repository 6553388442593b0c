"""Filled transfers are plans within the cap, and without start-ups as good as can be."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.iteration import Problem, bound, check, evaluate
from planner.families.iteration.evaluation import check_room
from planner.families.iteration.plan import Mode
from planner.families.iteration.transfers import greedy_fill
from planner.model.costs import AffineCost
from tests.iteration.iteration_strategies import problems
from tests.iteration.making import chain, cluster_of, on_switch, profile_of, solved
from tests.iteration.pricing import lasts

modes = st.sampled_from(["replicated", "sharded"])


@settings(max_examples=60)
@given(problems(capped=True), modes, st.booleans())
def test_filled_transfers_make_a_plan(problem: Problem, mode: Mode, waiting: bool) -> None:
    room = problem.transfer_limit(mode)
    assert room is not None
    assume(room >= problem.element_bytes)
    plan = greedy_fill(problem, problem.single[0], mode, waiting=waiting)
    assert plan.mode == mode
    check(problem, plan)
    check_room(problem, plan)
    assert evaluate(problem, plan).iteration_ns == lasts(problem, plan)
    if not waiting:
        return
    for kind in ("all_reduce", "push", "pull"):
        sent = [transfer.size_bytes for transfer in plan.transfers if transfer.kind == kind]
        assert all(room - size < problem.element_bytes for size in sent[:-1])


@settings(max_examples=40)
@given(problems(capped=False, one_order=True))
def test_byte_by_byte_and_without_start_ups_it_is_optimal(problem: Problem) -> None:
    """Then it is Jackson's preemptive rule, whose bound it meets."""
    problem = replace(
        problem,
        cluster=on_switch(2, 0),
        max_transfer_bytes=1,
        element_bytes=1,
        algorithms=("ring",),
    )
    option = problem.single[0]
    assert option.all_reduce.cost_ns(1) == 1
    plan = greedy_fill(problem, option, "replicated", waiting=False)
    assert evaluate(problem, plan).iteration_ns == bound(problem, option, "replicated", plan)


def test_what_is_read_first_fills_a_transfer_that_another_gradient_began() -> None:
    """By hand: w2 is ready at 10, w1 at 20, and w1 is read first.

    A transfer takes 10 ns and 1 ns a byte. 8 of w2's 12 bytes travel from 10 to 28, then w1's 6 and
    2 of w2 until 46, when the forward pass begins, and the last 2 of w2 until 58. Better is to keep
    the channel free for w1 from 20 to 36.
    """
    graph = chain((100, 10, 6), (100, 10, 12))
    options = {"algorithms": ("ps",), "modes": ("replicated",), "max_transfer_bytes": 8}
    problem = Problem(graph, on_switch(2, 5), **options)  # type: ignore[arg-type]
    (option,) = problem.single
    assert option.all_reduce == AffineCost(10, Fraction(1))
    plan = greedy_fill(problem, option, "replicated", waiting=False)
    assert [[tuple(part) for part in transfer.parts] for transfer in plan.transfers] == [
        [(1, 0, 8)],
        [(0, 0, 6), (1, 8, 10)],
        [(1, 10, 12)],
    ]
    assert evaluate(problem, plan).iteration_ns == 46 + 200
    assert solved(problem).iteration_ns == 36 + 200


@pytest.mark.parametrize("modes", [("replicated",), ("sharded",)])
@pytest.mark.parametrize("cluster", ["h100-8", "bml-bcube"])
def test_auto_fills_transfers_where_there_is_a_cap(cluster: str, modes: tuple[Mode, ...]) -> None:
    """Of LeNet-5 with transfers of a mebibyte: cut from large ones they were 33 % too long."""
    problem = Problem.from_profile(
        profile_of("lenet5"),
        cluster_of(cluster),
        computation=Fraction(1, 50),
        max_transfer_bytes=2**20,
        modes=modes,
        element_bytes=4,
    )
    _, objective, least = solved(problem)
    assert objective <= 1.05 * least
    for option in problem.single:
        for waiting in (True, False):
            plan = greedy_fill(problem, option, modes[0], waiting=waiting)
            assert objective <= evaluate(problem, plan).iteration_ns
