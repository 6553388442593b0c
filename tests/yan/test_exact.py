"""Exact answers against brute force: rankings, memory limits, and machines of different speeds."""

import re
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.yan import (
    Configuration,
    Constants,
    Fixed,
    NeuronLayer,
    Problem,
    estimate,
    solve,
)
from planner.families.yan.configuration import Explored, Triple
from planner.families.yan.layers import MAX_COUNT
from planner.families.yan.memory import infeasibility, space_of
from planner.families.yan.ordered import OrderedMachines, ordered
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import REPLAN
from planner.solving.result import Status
from tests.formats.refused import refused
from tests.patience import Patience
from tests.present import present
from tests.solved import Solved
from tests.yan import neuron_oracle
from tests.yan import yan_strategies as small
from tests.yan.yan_strategies import TINY, alike, brute_ranks, configurations, problems, solved

# How much memory is enough.


def least_bytes(problem: Problem) -> int:
    """What a machine must have at least, by trying everything."""
    found = []
    for workers in range(1, problem.machines):
        each = sum(
            min(
                neuron_oracle.segment_bytes(problem, place, partitions, 1)
                for partitions in range(1, min(layer.cuts, workers) + 1)
                if problem.partitions == "all" or partitions in (1, 2, 4, 8)
            )
            for place, layer in enumerate(problem.layers)
        )
        found.append(max(each, neuron_oracle.server_bytes(problem, problem.machines - workers)))
    return min(found)


@st.composite
def short_problems(draw: st.DrawFn, source: st.SearchStrategy[Problem]) -> Problem:
    """Memory from a byte too little to more than the fastest configuration takes."""
    problem = draw(source)
    enough = bytes_of(problem, solved(problem, "exact").plan.configuration)
    least, exactly = least_bytes(problem), bytes_of(problem, draw(configurations(problem)))
    between = draw(st.integers(max(1, least - 1), max(least, enough)))
    memory = min(draw(st.sampled_from([between, exactly])), MAX_COUNT)
    return replace(problem, memory_bytes=memory)


def bytes_of(problem: Problem, one: Configuration) -> int:
    """What each machine must have."""
    worker = neuron_oracle.worker_bytes(problem, one.layers)
    return max(worker, neuron_oracle.server_bytes(problem, one.parameter_servers))


@pytest.mark.slow
@settings(max_examples=50)
@given(problems(max_machines=6))
def test_infeasible_exactly_below_the_bytes_that_are_named(problem: Problem) -> None:
    least = least_bytes(problem)
    assume(least <= MAX_COUNT)
    assert solve(replace(problem, memory_bytes=least)).plan is not None
    assume(least > 1)
    found = present(solve(replace(problem, memory_bytes=least - 1)).infeasibility)
    assert found.binding == ("memory_bytes",)
    (layer,) = found.layers
    assert repr(problem.layers[layer].name) in found.reason
    servers = r"(\d+) of \d+ machines as servers? each server holds (\d+) bytes"
    named, held, worker = (
        present(re.search(words, found.reason))
        for words in (r"at least (\d+) bytes", servers, r"each worker up to (\d+)")
    )
    assert int(held[2]) == neuron_oracle.server_bytes(problem, int(held[1]))
    assert max(int(held[2]), int(worker[1])) == least == int(named[1])
    if int(held[2]) > int(worker[1]):
        assert problem.layers[layer].weights == max(one.weights for one in problem.layers)


@pytest.mark.parametrize(
    ("machines", "layer", "text"),
    [
        (2, 2, "each worker up to 1736, most of it (816) for layer 'c' in 1 partition"),
        (3, 2, "1 of 3 machines as server each server holds 1312 bytes of weights and"),
        (5, 1, "most of it (312) for layer 'b' in 2 partitions"),
    ],
)
def test_whether_servers_or_workers_bind(machines: int, layer: int, text: str) -> None:
    layers = (
        NeuronLayer("a", "full", 10, 30, 40),
        NeuronLayer("b", "full", 4, 40, 44),
        NeuronLayer("c", "full", 20, 80, 80),
    )
    short = Problem(machines, 1, layers, alike(1), 1, 1, memory_bytes=84)
    found = present(infeasibility(short))
    assert text in found.reason
    assert found.layers == (layer,)
    assert solve(short, method="greedy").infeasibility == found
    assert ordered(short, Deadline(0)).infeasibility == found
    kind = present(infeasibility(short, replace(space_of(short), most_workers=1)))
    assert "are needed for a configuration of this kind" in kind.reason
    assert present(solve(replace(TINY, machines=1)).infeasibility).binding == ("machines",)


def test_greedy_counts_the_servers_there_are() -> None:
    """Triples with as many servers to read from share their layers, but not their memory."""
    layers = (NeuronLayer("a", "full", 1, 3, 4), NeuronLayer("b", "full", 4, 4, 8))
    problem = Problem(6, 2, layers, alike(1, 2), 1, 1, read_model="max", memory_bytes=84)
    assert solved(problem, "greedy").plan.configuration.parameter_servers >= 2


def test_a_bound_for_machines_that_differ_holds_whenever_time_is_up() -> None:
    problem = replace(TINY, machine_speeds=tuple(map(Fraction, range(1, TINY.machines + 1))))
    triple = Triple(1, 1, 1)
    plans = OrderedMachines(problem).plans(triple)
    least = min(estimate(problem, plan).epoch for plan in plans)
    for looks in range(40):
        machines = OrderedMachines(problem, Patience(looks))
        with suppress(TimeUpError):  # before there is any bound
            assert machines.fastest.below(machines.bound(triple)) <= least


# The exact method.

some_problems = st.one_of(small.small_problems(), small.near_ties())


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
    assert [small.rank(one) for one in found] == expected[:top]
    assert result.plan.configuration == found[0].configuration
    assert result.objective_ns == result.lower_bound_ns == least
    assert result.status is Status.OPTIMAL
    assert result.plan.any_mapping_bound_ns is None or result.plan.any_mapping_bound_ns <= least
    if problem.memory_bytes is None:  # else this method may miss it
        assert solve(problem, method="ordered").objective_ns == least


@pytest.mark.slow
@settings(max_examples=40)
@given(small.small_problems(most=150, memory=True), st.data())
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
        with refused(f"fixed[{times.index(None)}]", ""):
            solve(given_ones)
    else:
        found = solved(given_ones).plan.ranking
        assert sorted(one.configuration.triple for one in found) == sorted(drawn)
        assert [one.epoch for one in found] == sorted(time for time in times if time)


@settings(max_examples=40)
@given(problems(max_machines=7), st.data())
def test_a_given_configuration_is_priced(problem: Problem, data: st.DataObject) -> None:
    one = data.draw(configurations(problem))
    fixed = Fixed(one.parameter_servers, one.replicas, one.workers_per_replica, one.layers)
    found = solved(replace(problem, fixed=(fixed,)), "exact").plan.ranking
    assert [each.epoch for each in found] == [neuron_oracle.epoch(problem, one)]
    unmapped = replace(fixed, layers=tuple(replace(layer, mapping=()) for layer in one.layers))
    assert solved(replace(problem, fixed=(unmapped,)), "exact").plan.ranking == found


MEASURED: dict[str, Any] = {"forward_ns": Fraction(1, 10), "backward_ns": Fraction(1, 10)}
FEW_BITS = {"bits_per_activation": 8, "bits_per_weight": 16}
UNLIKE = {"muladd_ns": 4e8, "error_ns": 4.2, "latency_ns": (290, 5), "bits_per_weight": 7e5}
SHORT = {"read_model": "max", "memory_bytes": 16_800_288, "top": 50}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "constants", "options"),
    [
        # Optimistic costs cut every state of one layer. Then the program on few choices is the
        # answer; its states had no rows to add up.
        (
            [
                NeuronLayer("a", "full", 1, 1, 1, **MEASURED),
                NeuronLayer("b", "full", 3, 3, 3, **MEASURED),
                NeuronLayer("c", "full", 2, 6, 6),
            ],
            alike(0.1, 3, 5e9, interference=(10, 0.1, 0.1), **FEW_BITS),
            {"machines": 3, "read_every": 1, "top": 1},
        ),
        # Optimistic costs are below the bounds on all mappings. Every state was cut then, and
        # nothing was left to divide by.
        (
            [
                NeuronLayer("a", "conv", 12, 24, 6, shape=(3, 1, 4), kernel=1),
                NeuronLayer("b", "full", 2, 24, 24),
                NeuronLayer("c", "full", 3, 6, 6),
            ],
            alike(0.1, 3, 10**11, interference=(2, 1, 0.1)),
            {"machines": 5, "read_every": 4, "read_model": "max", "partitions": "all"},
        ),
        # Memory is just enough, so a byte costs far more than time: rounding grows with the price.
        (
            [NeuronLayer("c", "conv", 63, 2016, 96, (3, 7, 3), 4, 3, 3)],
            alike(5, 2, 2_710_000_000, interference=(1, 1.9), **UNLIKE),
            {"machines": 5, "read_every": 1, **SHORT},
        ),
    ],
    ids=["every state of a layer is cut", "every state is cut", "bytes at a high price"],
)
def test_problems_that_were_hard_are_solved_as_by_brute_force(
    layers: list[NeuronLayer], constants: Constants, options: dict[str, Any]
) -> None:
    problem = Problem(layers=layers, constants=constants, cores=2, samples=1, **options)
    result = solved(problem)
    assert result.bound_ns <= result.iteration_ns == small.brute_result(problem).objective_ns


def test_an_old_plan_explores_what_is_priced_again() -> None:
    """Whatever the old search explored, or an edited plan says of it."""
    old = solved(TINY, "exact").plan
    odd = replace(old, explored=replace(old.explored, triples=-1), ranking=2 * old.ranking)
    plan = present(solve(TINY, start=odd, method=REPLAN).plan)
    assert plan.explored == Explored(len(set(old.ranking[:4])), 0)


# Machines of different speeds.


different = problems(
    min_machines=3, max_machines=5, max_layers=2, max_threads=1, speeds=True
).filter(lambda problem: not problem.uniform)


@settings(max_examples=60)
@given(different)
def test_a_given_triple_is_completed_and_no_worse_than_its_bound(problem: Problem) -> None:
    ranking = solved(replace(problem, fixed=(Fixed(1, 1, 2), Fixed(1, 2, 1)), top=2)).plan.ranking
    assert {ranked.configuration.triple for ranked in ranking} == {(2, 1, 1), (1, 2, 1)}
    cluster = OrderedMachines(problem)
    for one in ranking:
        bound = cluster.bound(Triple(*one.configuration.triple))
        assert bound <= float(one.epoch) * (1 + 1e-9)


def test_the_slowest_replica_is_not_the_slowest_in_every_layer() -> None:
    """Bounds of layers add up over the mean of the replicas, not over the slowest one of each."""
    layers = (
        NeuronLayer("a", "conv", 2000, 2000, 1, (1, 2, 1000), 1),
        NeuronLayer("b", "conv", 999, 3996, 4, (1, 1, 999), 2),
    )
    constants = alike(0.001, nic=10**8, muladd_ns=1, bits_per_activation=1e-5)
    speeds = [Fraction(tenths, 10) for tenths in (15, 11, 11, 9, 1)]
    options: dict[str, Any] = {"read_model": "max", "max_copies": 1, "machine_speeds": speeds}
    problem = Problem(5, 1, layers, constants, 1000, 1, **options)
    result, best = solve(problem), Solved.of(small.brute_result(problem)).iteration_ns
    assert Solved.of(result).bound_ns <= best
    assert result.status is not Status.OPTIMAL or result.objective_ns == best


def test_slow_machines_serve() -> None:
    layer = NeuronLayer("a", "full", 64, 6400, 6464)
    constants = alike(1, nic=10**10, latency_ns=(10,))
    speeds = [Fraction(1, 10), Fraction(1), Fraction(1)]
    plan = solved(Problem(3, 1, (layer,), constants, 1000, 100, machine_speeds=speeds)).plan
    assert present(plan.configuration.machines)[0] == 0
