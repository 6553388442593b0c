"""The best batches of parameters that may be cut: what is made are plans."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from planner.families.iteration.baselines import cut_both_ways, enforced
from planner.families.iteration.evaluation import check
from planner.families.iteration.plan import lines_of
from planner.families.iteration.problem import Problem
from planner.families.iteration.transfers import settled
from tests.iteration.iteration_strategies import problems
from tests.iteration.test_memory import chain, machines


def assert_plans(problem: Problem) -> int:
    """Check the plan by each option, and return how many pieces of parameters they have."""
    pieces = 0
    for option in problem.options:
        transfers = cut_both_ways(problem, lines_of(option, "push"))
        check(problem, settled(enforced(problem, option.algorithm, transfers), option))
        for transfer in transfers:
            assert len({part.parameter for part in transfer.parts}) == len(transfer.parts)
        pieces += sum(len(transfer.parts) for transfer in transfers)
    return pieces


@given(problems(), st.sampled_from([1, 3, 7]))
def test_every_plan_is_one(problem: Problem, element_bytes: int) -> None:
    assert_plans(replace(problem, element_bytes=element_bytes, max_transfer_bytes=None))


def test_what_is_left_of_an_element_comes_last_wherever_it_is_sent() -> None:
    """800 bytes are twelve and a half elements."""
    pieces = assert_plans(Problem(chain(4000, 800), machines(4, None), element_bytes=64))
    assert pieces > 4 * 3  # some parameter is cut


def test_the_rest_of_an_element_and_other_bytes_of_it_are_one_piece() -> None:
    """181142431 bytes by elements of two: answers say one range of bytes of a parameter."""
    graph = chain(1, 181142431)
    assert_plans(Problem(graph, machines(4, None), element_bytes=2))
