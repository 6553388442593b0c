"""Memory as a hard limit: against brute force, from far too little to plenty."""

import re
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.yan import Configuration, Constants, Problem, solve
from planner.families.yan.layers import MAX_COUNT, NeuronLayer
from planner.families.yan.memory import infeasibility, space_of
from tests.yan import neuron_oracle
from tests.yan.small_problems import TINY, alike, brute_result
from tests.yan.yan_strategies import configurations, problems


def least_bytes(problem: Problem) -> int:
    """What a machine must have at least, by trying everything."""
    found = []
    for workers in range(1, problem.machines):
        partitions = [
            [p for p in range(1, min(layer.cuts, workers) + 1) if allowed(problem, p)]
            for layer in problem.layers
        ]
        each = sum(
            min(neuron_oracle.segment_bytes(problem, place, p, 1) for p in some)
            for place, some in enumerate(partitions)
        )
        server = neuron_oracle.server_bytes(problem, problem.machines - workers)
        found.append(max(each, server))
    return min(found)


def allowed(problem: Problem, partitions: int) -> bool:
    return problem.partitions == "all" or partitions in (1, 2, 4, 8)


@st.composite
def short_problems(draw: st.DrawFn, source: st.SearchStrategy[Problem]) -> Problem:
    """Memory from a byte too little to more than the fastest configuration takes."""
    problem = draw(source)
    result = solve(problem, method="exact")
    assert result.plan is not None
    enough, some = bytes_of(problem, result.plan.configuration), draw(configurations(problem))
    least = least_bytes(problem)
    between = draw(st.integers(max(1, least - 1), max(least, enough)))
    exactly = bytes_of(problem, some)
    memory = min(draw(st.sampled_from([between, exactly])), MAX_COUNT)
    return replace(problem, memory_bytes=memory)


def bytes_of(problem: Problem, one: Configuration) -> int:
    """What each machine must have."""
    worker = sum(
        neuron_oracle.segment_bytes(problem, place, layer.partitions, layer.threads)
        for place, layer in enumerate(one.layers)
    )
    return max(worker, neuron_oracle.server_bytes(problem, one.parameter_servers))


@pytest.mark.slow
@settings(max_examples=50)
@given(problems(max_machines=6))
def test_infeasible_exactly_below_the_bytes_that_are_named(problem: Problem) -> None:
    least = least_bytes(problem)
    assume(least <= MAX_COUNT)
    assert solve(replace(problem, memory_bytes=least)).plan is not None
    assume(least > 1)
    result = solve(replace(problem, memory_bytes=least - 1))
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("memory_bytes",)
    named = re.search(r"at least (\d+) bytes", result.infeasibility.reason)
    assert named is not None
    assert int(named[1]) == least
    (layer,) = result.infeasibility.layers
    reason = result.infeasibility.reason
    assert repr(problem.layers[layer].name) in reason
    held = re.search(r"(\d+) of \d+ machines as servers? each server holds (\d+) bytes", reason)
    worker = re.search(r"each worker up to (\d+)", reason)
    assert held is not None
    assert worker is not None
    assert int(held[2]) == neuron_oracle.server_bytes(problem, int(held[1]))
    assert max(int(held[2]), int(worker[1])) == least
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
    constants = replace(
        TINY.constants, bits_per_activation=Fraction(32), bits_per_weight=Fraction(32)
    )
    short = Problem(machines, 1, layers, constants, 1, 1, memory_bytes=84)
    found = infeasibility(short)
    assert found is not None
    assert text in found.reason
    assert found.layers == (layer,)
    kind = infeasibility(short, replace(space_of(short), most_workers=1))
    assert kind is not None
    assert "are needed for a configuration of this kind" in kind.reason


def test_bytes_at_a_high_price_do_not_hide_what_fits() -> None:
    """Memory is just enough, so a byte costs far more than time: rounding grows with the price."""
    layer = NeuronLayer("c", "conv", 63, 2016, 96, (3, 7, 3), 4, 3, 3)
    constants = Constants(
        muladd_ns=Fraction(4 * 10**8),
        activation_ns=Fraction(5),
        error_ns=Fraction(42, 10),
        latency_ns=(Fraction(290), Fraction(5)),
        nic_bits_per_s=Fraction(2_710_000_000),
        interference=(Fraction(1), Fraction(19, 10)),
        bits_per_weight=Fraction(700_000),
    )
    problem = Problem(
        5, 2, (layer,), constants, 1, 1, read_model="max", memory_bytes=16_800_288, top=50
    )
    assert solve(problem).objective_ns == brute_result(problem).objective_ns


def test_greedy_counts_the_servers_there_are() -> None:
    """Triples with as many servers to read from share their layers, but not their memory."""
    layers = (NeuronLayer("a", "full", 1, 3, 4), NeuronLayer("b", "full", 4, 4, 8))
    problem = Problem(6, 2, layers, alike(1, 2), 1, 1, read_model="max", memory_bytes=84)
    result = solve(problem, method="greedy")
    assert result.plan is not None
    assert result.plan.configuration.parameter_servers >= 2
