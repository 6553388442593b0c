"""Pushes between pulls: what is made are plans, however parameters are cut."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from planner.families.iteration import solve
from planner.families.iteration.baselines import enforced
from planner.families.iteration.evaluation import check, evaluate
from planner.families.iteration.plan import lines_of
from planner.families.iteration.problem import Problem
from planner.families.iteration.push_pull_interleaving import interleaved
from planner.families.iteration.transfers import assign_algorithms
from planner.solving.deadline import Deadline
from tests.iteration import brute_force
from tests.iteration.iteration_strategies import problems
from tests.iteration.making import chain, on_switch


def assert_plans(problem: Problem) -> int:
    """Check every plan there is, and return how many pieces of parameters they have."""
    pieces = 0
    for option in problem.options:
        for transfers in interleaved(problem, lines_of(option, "push"), 0, Deadline(None)):
            check(
                problem, assign_algorithms(enforced(problem, option.algorithm, transfers), option)
            )
            for transfer in transfers:
                assert len({part.parameter for part in transfer.parts}) == len(transfer.parts)
            pieces += sum(len(transfer.parts) for transfer in transfers)
    return pieces


@given(problems(), st.sampled_from([1, 3, 7]))
def test_every_plan_is_one(problem: Problem, element_bytes: int) -> None:
    assert_plans(replace(problem, element_bytes=element_bytes, max_transfer_bytes=None))


def test_what_is_left_of_an_element_comes_last_wherever_it_is_sent() -> None:
    """800 bytes are twelve and a half elements."""
    pieces = assert_plans(
        Problem(chain((10, 20, 4000), (10, 20, 800)), on_switch(4, 5), element_bytes=64)
    )
    assert pieces > 4 * 3  # some parameter is cut


def test_the_rest_of_an_element_and_other_bytes_of_it_are_one_piece() -> None:
    """181142431 bytes by elements of two: answers say one range of bytes of a parameter."""
    graph = chain((10, 20, 1), (10, 20, 181142431))
    assert_plans(Problem(graph, on_switch(4, 5), element_bytes=2))


def test_what_is_read_late_is_pushed_while_the_forward_pass_computes() -> None:
    """By hand: w1 is pushed from 2 to 17 and pulled until 32; w2's 420 ns hide behind f1."""
    graph = chain((1000, 1, 10), (5, 1, 400))
    problem = Problem(graph, on_switch(2, 10), algorithms=("ring",), modes=("sharded",))
    assert solve(problem).objective_ns == 32 + 1005
    every = (evaluate(problem, plan).iteration_ns for plan in brute_force.sharded(problem, "ring"))
    assert min(every) == 32 + 1005
    apart = brute_force.pushes_then_pulls(problem, "ring")
    assert min(evaluate(problem, plan).iteration_ns for plan in apart) > 1200
