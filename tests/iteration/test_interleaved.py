"""Pulls between pushes: what is made are plans, however parameters are cut."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from planner.deadline import Deadline
from planner.iteration.checker import check
from planner.iteration.interleaved import interleaved
from planner.iteration.problem import Problem
from planner.iteration.rules import enforced
from tests.iteration.iteration_strategies import problems
from tests.iteration.test_memory import chain, machines


def assert_plans(problem: Problem) -> int:
    """Check every plan there is, and return how many pieces of parameters they have."""
    pieces = 0
    for one in problem.options:
        for transfers in interleaved(problem, one.half, 0, Deadline(None)):
            check(problem, enforced(problem, one.algorithm, transfers))
            pieces += sum(len(transfer.parts) for transfer in transfers)
    return pieces


@given(problems(), st.sampled_from([1, 3, 7]))
def test_every_plan_is_one(problem: Problem, element_bytes: int) -> None:
    assert_plans(replace(problem, element_bytes=element_bytes, max_transfer_bytes=None))


def test_what_is_left_of_an_element_comes_last_wherever_it_is_sent() -> None:
    """800 bytes are twelve and a half elements."""
    pieces = assert_plans(Problem(chain(4000, 800), machines(4, None), element_bytes=64))
    assert pieces > 4 * 3  # some parameter is cut
