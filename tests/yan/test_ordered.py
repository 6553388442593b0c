"""Machines of different speeds: never better than brute force, never below its own bound."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.families.yan import Constants, Fixed, NeuronLayer, Problem, solve
from planner.families.yan.configuration import Triple
from planner.families.yan.ordered import OrderedMachines
from planner.solving.result import Status
from tests.yan.small_problems import alike, brute_result
from tests.yan.yan_strategies import problems

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

SPEEDS = st.sampled_from([Fraction(1, 4), Fraction(1), Fraction(3, 2), Fraction(2)])


@st.composite
def different(draw: st.DrawFn, most: int = 4) -> Problem:
    problem = draw(problems(min_machines=3, max_machines=most, max_layers=2, max_threads=1))
    count = problem.machines
    return replace(
        problem,
        machine_speeds=draw(st.lists(SPEEDS, min_size=count, max_size=count)),
        top=3,
    )


def test_the_slowest_replica_is_not_the_slowest_in_every_layer() -> None:
    """Bounds of layers add up over the mean of the replicas, not over the slowest one of each."""
    layers = (
        NeuronLayer("a", "conv", 2000, 2000, 1, (1, 2, 1000), 1),
        NeuronLayer("b", "conv", 999, 3996, 4, (1, 1, 999), 2),
    )
    small = Fraction(1, 1000)
    constants = Constants(
        Fraction(1), small, small, (small,), Fraction(10**8), (Fraction(1),), Fraction(1, 10**5)
    )
    problem = Problem(
        machines=5,
        cores=1,
        layers=layers,
        constants=constants,
        samples=1000,
        read_every=1,
        read_model="max",
        max_copies=1,
        machine_speeds=[Fraction(tenths, 10) for tenths in (15, 11, 11, 9, 1)],
    )
    result, best = solve(problem), brute_result(problem)
    assert best.objective_ns is not None
    assert result.lower_bound_ns is not None
    assert result.lower_bound_ns <= best.objective_ns
    assert result.status is not Status.OPTIMAL or result.objective_ns == best.objective_ns


@pytest.mark.slow
@SLOW
@given(problems(min_machines=2, max_machines=5, max_layers=2, max_threads=2))
def test_on_equal_machines_it_is_as_good_as_the_exact_method(problem: Problem) -> None:
    ordered, exact = solve(problem, method="ordered"), solve(problem, method="exact")
    assert ordered.objective_ns == exact.objective_ns


@SLOW
@given(different(most=5))
def test_a_given_triple_is_completed_and_no_worse_than_its_bound(problem: Problem) -> None:
    fixed = replace(problem, fixed=(Fixed(1, 1, 2), Fixed(1, 2, 1)), top=2)
    result = solve(fixed)
    assert result.plan is not None
    assert {ranked.configuration.triple for ranked in result.plan.ranking} == {(2, 1, 1), (1, 2, 1)}
    cluster = OrderedMachines(problem)
    for one in result.plan.ranking:
        bound = cluster.bound(Triple(*one.configuration.triple))
        assert bound <= float(one.epoch) * (1 + 1e-9)


def test_slow_machines_serve() -> None:
    layer = NeuronLayer("a", "full", 64, 6400, 6464)
    constants = alike(1, nic=10**10, latency_ns=(Fraction(10),))
    speeds = [Fraction(1, 10), Fraction(1), Fraction(1)]
    problem = Problem(3, 1, (layer,), constants, 1000, 100, machine_speeds=speeds)
    result = solve(problem)
    assert result.plan is not None
    machines = result.plan.configuration.machines
    assert machines is not None
    assert machines[0] == 0
