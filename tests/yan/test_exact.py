"""The exact method against brute force, and what must not change its answer."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan import Fixed, NeuronLayer, Plan, Problem, solve
from planner.families.yan.configuration import Explored
from planner.model.errors import InvalidInputError
from planner.solving.methods import REPLAN
from planner.solving.result import Status
from tests.yan import neuron_oracle
from tests.yan.small_problems import (
    TINY,
    alike,
    brute_ranks,
    brute_result,
    near_ties,
    rank,
    small_problems,
)
from tests.yan.test_memory import short_problems
from tests.yan.yan_strategies import configurations, problems


def planned(problem: Problem, method: str = "exact") -> Plan:
    plan = solve(problem, method=method).plan
    assert plan is not None
    return plan


some_problems = st.one_of(small_problems(), near_ties())


@pytest.mark.slow
@settings(max_examples=288)
@given(some_problems | short_problems(some_problems), st.integers(1, 40))
def test_ranking_is_that_of_brute_force(problem: Problem, top: int) -> None:
    """Rounding decides nothing, and memory is kept to, from far too little to plenty."""
    result, expected = solve(replace(problem, top=top)), brute_ranks(problem)
    assert (result.plan is None) == (not expected)
    if result.plan is None:
        assert result.status is Status.INFEASIBLE
        return
    found, least = result.plan.ranking, -int(-expected[0][0] // 1)
    assert [rank(one) for one in found] == expected[:top]
    assert result.plan.configuration == found[0].configuration
    assert result.objective_ns == result.lower_bound_ns == least
    assert result.status is Status.OPTIMAL
    assert result.plan.any_mapping_bound_ns is None or result.plan.any_mapping_bound_ns <= least


@pytest.mark.slow
@settings(max_examples=40)
@given(small_problems(most=150, memory=True), st.data())
def test_fixed_triples_are_completed_by_the_best_layers(
    problem: Problem, data: st.DataObject
) -> None:
    drawn = [data.draw(configurations(problem)).triple for _ in range(data.draw(st.integers(1, 3)))]
    fixed = tuple(Fixed(servers, replicas, workers) for workers, replicas, servers in drawn)
    expected = brute_ranks(problem)
    best = {(workers, replicas, -servers): time for time, servers, workers, replicas in expected}
    times = [best.get(triple) for triple in drawn]
    given_ones = replace(problem, fixed=fixed)
    if not expected:
        assert solve(given_ones).infeasibility is not None
    elif None in times:
        with pytest.raises(InvalidInputError) as caught:
            solve(given_ones)
        assert caught.value.path == f"fixed[{times.index(None)}]"
    else:
        found = planned(given_ones).ranking
        assert sorted(one.configuration.triple for one in found) == sorted(drawn)
        assert [one.epoch for one in found] == sorted(time for time in times if time)


@settings(max_examples=40)
@given(problems(max_machines=7), st.data())
def test_a_given_configuration_is_priced(problem: Problem, data: st.DataObject) -> None:
    one = data.draw(configurations(problem))
    fixed = Fixed(one.parameter_servers, one.replicas, one.workers_per_replica, one.layers)
    found = planned(replace(problem, fixed=(fixed,))).ranking
    assert [each.epoch for each in found] == [neuron_oracle.price(problem, one).epoch]
    unmapped = replace(fixed, layers=tuple(replace(layer, mapping=()) for layer in one.layers))
    assert planned(replace(problem, fixed=(unmapped,))).ranking == found


def test_optimistic_costs_may_cut_every_state_of_one_layer() -> None:
    """Then the program on few choices is the answer; its states had no rows to add up."""
    tenth = Fraction(1, 10)
    layers = (
        NeuronLayer("a", "full", 1, 1, 1, forward_ns=tenth, backward_ns=tenth),
        NeuronLayer("b", "full", 3, 3, 3, forward_ns=tenth, backward_ns=tenth),
        NeuronLayer("c", "full", 2, 6, 6),
    )
    few = {"bits_per_activation": Fraction(8), "bits_per_weight": Fraction(16)}
    slower = (Fraction(10), tenth, tenth)
    constants = alike(tenth, 3, 5 * 10**9, interference=slower, **few)
    problem = Problem(3, 2, layers, constants, samples=1, read_every=1, top=1)
    result = solve(problem)
    assert result.objective_ns == brute_result(problem).objective_ns


@pytest.mark.slow
def test_optimistic_costs_below_the_bounds_on_all_mappings() -> None:
    """Every state was cut then, and nothing was left to divide by."""
    slower = (Fraction(2), Fraction(1), Fraction(1, 10))
    constants = alike(Fraction(1, 10), 3, 10**11, interference=slower)
    layers = (
        NeuronLayer("a", "conv", 12, 24, 6, shape=(3, 1, 4), kernel=1),
        NeuronLayer("b", "full", 2, 24, 24),
        NeuronLayer("c", "full", 3, 6, 6),
    )
    problem = Problem(5, 2, layers, constants, 1, read_every=4, read_model="max", partitions="all")
    result = solve(problem, method="exact")
    assert result.objective_ns == brute_result(problem).objective_ns
    assert result.lower_bound_ns is not None
    assert result.lower_bound_ns <= (result.objective_ns or 0)


def test_one_machine_is_not_enough() -> None:
    result = solve(replace(TINY, machines=1))
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("machines",)


def test_an_old_plan_explores_what_is_priced_again() -> None:
    """Whatever the old search explored, or an edited plan says of it."""
    problem = TINY
    old = planned(problem)
    odd = replace(old, explored=replace(old.explored, triples=-1), ranking=2 * old.ranking)
    result = solve(problem, start=odd, method=REPLAN)
    assert result.plan is not None
    assert result.plan.explored == Explored(len(set(old.ranking[:4])), 0)
