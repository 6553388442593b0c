"""The exact method against brute force, and what must not change its answer."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan import Constants, Fixed, NeuronLayer, Plan, Problem, solve
from planner.families.yan.configuration import Explored
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.solving.methods import REPLAN
from planner.solving.result import Status
from tests.yan import neuron_oracle
from tests.yan.small_problems import (
    TINY,
    Rank,
    brute_ranks,
    brute_result,
    near_ties,
    rank,
    small_problems,
)
from tests.yan.yan_strategies import configurations, problems


def planned(problem: Problem, method: str = "exact") -> Plan:
    plan = solve(problem, method=method).plan
    assert plan is not None
    return plan


def ranks(problem: Problem) -> list[Rank]:
    return [rank(ranked) for ranked in planned(problem).ranking]


@pytest.mark.slow
@settings(max_examples=80)
@given(small_problems())
def test_ranking_is_that_of_brute_force(problem: Problem) -> None:
    result = solve(problem)
    assert result.plan is not None
    expected = brute_ranks(problem)
    assert [rank(ranked) for ranked in result.plan.ranking] == expected[: problem.top]
    assert result.plan.configuration == result.plan.ranking[0].configuration
    assert result.objective_ns == result.lower_bound_ns == -int(-expected[0][0] // 1)
    assert result.status is Status.OPTIMAL


@pytest.mark.slow
@settings(max_examples=50)
@given(near_ties())
def test_rounding_decides_nothing(problem: Problem) -> None:
    expected = brute_ranks(problem)
    assert ranks(problem) == expected[: problem.top]


@settings(max_examples=25)
@given(small_problems(most=120))
def test_best_by_the_neurons_themselves(problem: Problem) -> None:
    best = planned(problem).ranking[0]
    assert neuron_oracle.price(problem, best.configuration).epoch == best.epoch


@pytest.mark.slow
@settings(max_examples=40)
@given(small_problems(most=120), st.integers(1, 40))
def test_ranking_of_any_length(problem: Problem, top: int) -> None:
    found = planned(replace(problem, top=top)).ranking
    expected = brute_ranks(problem)
    assert [rank(one) for one in found] == expected[:top]
    triples = [one.configuration.triple for one in found]
    assert len(set(triples)) == len(triples)


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


@pytest.mark.slow
@settings(max_examples=40)
@given(problems(max_machines=8, max_layers=4))
def test_more_machines_never_hurt(problem: Problem) -> None:
    more = replace(problem, machines=problem.machines + 1)
    assert planned(more).ranking[0].epoch <= planned(problem).ranking[0].epoch


@pytest.mark.slow
@settings(max_examples=40)
@given(problems(max_machines=8, max_layers=4), st.sampled_from(["0.001", "0.3", "7", "1000"]))
def test_times_scale(problem: Problem, text: str) -> None:
    factor, constants = Fraction(text), problem.constants
    scaled = replace(
        constants,
        muladd_ns=constants.muladd_ns * factor,
        activation_ns=constants.activation_ns * factor,
        error_ns=constants.error_ns * factor,
        latency_ns=[latency * factor for latency in constants.latency_ns],
        nic_bits_per_s=constants.nic_bits_per_s / factor,
    )
    layers = [layer.times(factor) for layer in problem.layers]
    expected = [(time * factor, *rest) for time, *rest in ranks(problem)]
    assert ranks(replace(problem, layers=layers, constants=scaled)) == expected


@pytest.mark.slow
@settings(max_examples=40)
@given(problems(max_machines=7), st.sampled_from(["0.5", "3"]))
def test_machines_that_are_alike(problem: Problem, speed: str) -> None:
    alike = replace(problem, machine_speeds=[Fraction(speed)] * problem.machines)
    constants = problem.constants
    stated = replace(
        problem,
        layers=[layer.times(1 / Fraction(speed)) for layer in problem.layers],
        constants=replace(
            constants,
            muladd_ns=constants.muladd_ns / Fraction(speed),
            activation_ns=constants.activation_ns / Fraction(speed),
            error_ns=constants.error_ns / Fraction(speed),
        ),
    )
    assert ranks(alike) == ranks(stated)


def test_optimistic_costs_may_cut_every_state_of_one_layer() -> None:
    """Then the program on few choices is the answer; its states had no rows to add up."""
    tenth = Fraction(1, 10)
    problem = Problem(
        machines=3,
        cores=2,
        layers=(
            NeuronLayer("a", "full", 1, 1, 1, forward_ns=tenth, backward_ns=tenth),
            NeuronLayer("b", "full", 3, 3, 3, forward_ns=tenth, backward_ns=tenth),
            NeuronLayer("c", "full", 2, 6, 6),
        ),
        constants=Constants(
            muladd_ns=tenth,
            activation_ns=tenth,
            error_ns=tenth,
            latency_ns=(tenth,) * 3,
            nic_bits_per_s=Fraction(5 * 10**9),
            interference=(Fraction(10), tenth, tenth),
            bits_per_activation=Fraction(8),
            bits_per_weight=Fraction(16),
        ),
        samples=1,
        read_every=1,
        top=1,
    )
    result = solve(problem)
    assert result.objective_ns == brute_result(problem).objective_ns


@pytest.mark.slow
def test_optimistic_costs_below_the_bounds_on_all_mappings() -> None:
    """Every state was cut then, and nothing was left to divide by."""
    fast = {name: Fraction(1, 10) for name in ("muladd_ns", "activation_ns", "error_ns")}
    constants = Constants(
        **fast,
        latency_ns=(Fraction(1, 10),) * 3,
        nic_bits_per_s=Fraction(10**11),
        interference=(Fraction(2), Fraction(1), Fraction(1, 10)),
        bits_per_activation=Fraction(32),
        bits_per_weight=Fraction(32),
    )
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


@pytest.mark.slow
@settings(max_examples=40)
@given(problems(max_machines=8))
def test_powers_of_two_cost_no_less(problem: Problem) -> None:
    few = planned(replace(problem, partitions="powers_of_two"))
    every = planned(replace(problem, partitions="all"))
    assert few.ranking[0].epoch >= every.ranking[0].epoch
    for ranked in few.ranking:
        assert all(layer.partitions in (1, 2, 4) for layer in ranked.configuration.layers)


@pytest.mark.slow
@settings(max_examples=40)
@given(problems(max_machines=8, max_layers=4))
def test_explored_counts_everything(problem: Problem) -> None:
    explored = planned(problem).explored
    n = problem.machines
    expected = sum(
        1
        for workers in range(1, n)
        for replicas in range(1, n)
        for servers in range(1, n)
        if workers * replicas + servers <= n
    )
    assert explored.triples == expected
    assert 0 <= explored.triples_cut < explored.triples


def test_one_machine_is_not_enough() -> None:
    result = solve(replace(TINY, machines=1))
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("machines",)


def test_exact_refuses_machines_that_differ() -> None:
    speeds = [Fraction(speed) for speed in (1, 1, 2, 1)]
    with pytest.raises(NotApplicableError) as caught:
        solve(replace(TINY, machine_speeds=speeds), method="exact")
    assert caught.value.path == "machine_speeds"


def test_an_old_plan_explores_what_is_priced_again() -> None:
    """Whatever the old search explored, or an edited plan says of it."""
    problem = TINY
    old = planned(problem)
    odd = replace(old, explored=replace(old.explored, triples=-1), ranking=2 * old.ranking)
    result = solve(problem, start=odd, method=REPLAN)
    assert result.plan is not None
    assert result.plan.explored == Explored(len(set(old.ranking[:4])), 0)
