"""The front of machines and time."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings

from planner.families.yan.family import solve
from planner.families.yan.layers import NeuronLayer
from planner.families.yan.model import estimate
from planner.families.yan.pareto import pareto_front
from planner.families.yan.problem import Constants, Problem
from planner.solving.deadline import Deadline
from tests.yan.small_problems import alike
from tests.yan.yan_strategies import problems

some = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def network(machines: int = 9) -> Problem:
    layers = (
        NeuronLayer("first", "full", 40, 1200, 1240),
        NeuronLayer("second", "full", 30, 1200, 1230),
        NeuronLayer("last", "full", 10, 300, 310),
    )
    constants = Constants(
        muladd_ns=Fraction(1),
        activation_ns=Fraction(3),
        error_ns=Fraction(2),
        latency_ns=(Fraction(100), Fraction(120)),
        nic_bits_per_s=Fraction(10**10),
        interference=(Fraction(1), Fraction("1.1")),
    )
    return Problem(machines, 2, layers, constants, samples=1000, read_every=10)


def hold_against_the_best(problem: Problem) -> None:
    """Check the front against the exact method's plans for each number of machines."""
    front = pareto_front(problem)
    for one, more in pairwise(front):
        assert one.configuration.machines_used < more.configuration.machines_used
        assert one.epoch > more.epoch
    at_most: Fraction | None = None
    reached = {one.configuration.machines_used: one.epoch for one in front}
    for one in front:
        assert estimate(problem, one.configuration).epoch == one.epoch
    for machines in range(2, problem.machines + 1):
        speeds = problem.machine_speeds and problem.machine_speeds[:machines]
        fewer = replace(problem, machines=machines, machine_speeds=speeds, top=1)
        plan = solve(fewer, method="exact").plan
        at_most = reached.get(machines, at_most)
        assert at_most == (None if plan is None else plan.ranking[0].epoch)


@pytest.mark.slow
@some
@given(problems(max_machines=7, memory=True) | problems(max_machines=7))
def test_front_is_the_best_of_each_number_of_machines(problem: Problem) -> None:
    hold_against_the_best(problem)


def test_machines_of_one_speed_are_alike() -> None:
    hold_against_the_best(replace(network(5), machine_speeds=[Fraction(2)] * 5))


def test_front_counts_a_worker_that_only_reads() -> None:
    """With as many servers as workers an idle worker lets all read side by side."""
    layers = (NeuronLayer("first", "full", 1, 1, 1), NeuronLayer("last", "full", 1, 1, 1))
    problem = Problem(4, 1, layers, alike(1, nic=10**6), samples=10, read_every=1, max_copies=1)
    front = pareto_front(problem)
    assert front[-1].configuration.triple == (2, 1, 2)
    hold_against_the_best(problem)


def test_more_machines_are_worth_something() -> None:
    front = pareto_front(network())
    assert [one.configuration.machines_used for one in front][:2] == [2, 3]
    assert front[0].configuration.triple == (1, 1, 1)
    assert len(front) > 3


def test_a_front_ends_where_the_time_is_up() -> None:
    assert pareto_front(network(), deadline=Deadline(0)) == ()
    whole = pareto_front(network())
    assert pareto_front(network(), deadline=Deadline(1000)) == whole


def test_bounds_are_worked_out_no_longer_than_there_is_time() -> None:
    class Soon:
        """Set from the third time on that it is asked."""

        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > 2

    soon = Soon()
    assert pareto_front(network(), deadline=Deadline(None, soon)) == ()
    assert soon.asked == 3


def test_nothing_where_nothing_fits() -> None:
    for problem in (network(1), replace(network(), memory_bytes=1)):
        assert pareto_front(problem) == ()
