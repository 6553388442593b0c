"""Memory as a hard limit: against brute force, from far too little to plenty."""

import re
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.results import Status
from planner.yan import Configuration, Problem, solve
from planner.yan.engine import Engine
from planner.yan.layerwise import Triple
from planner.yan.memory import Memory, fitting
from planner.yan.solver import METHODS
from tests.yan import neuron_oracle
from tests.yan.small_problems import TINY, brute_ranks, near_ties, rank, small_problems
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
    return replace(problem, memory_bytes=draw(st.sampled_from([between, exactly])))


def bytes_of(problem: Problem, one: Configuration) -> int:
    """What each machine must have."""
    worker = sum(
        neuron_oracle.segment_bytes(problem, place, layer.partitions, layer.threads)
        for place, layer in enumerate(one.layers)
    )
    return max(worker, neuron_oracle.server_bytes(problem, one.parameter_servers))


@settings(max_examples=100)
@given(short_problems(small_problems()) | short_problems(near_ties()))
def test_ranking_is_that_of_brute_force(problem: Problem) -> None:
    result, expected = solve(problem), brute_ranks(problem)
    assert (result.plan is None) == (not expected)
    if result.plan is None:
        assert result.status is Status.INFEASIBLE
        return
    assert [rank(one) for one in result.plan.ranking] == expected[: problem.top]
    assert result.status is Status.OPTIMAL
    assert result.plan.any_mapping_bound_ns is not None
    assert result.plan.any_mapping_bound_ns <= expected[0][0] + 1


@settings(max_examples=50)
@given(problems(max_machines=7, max_layers=4))
def test_infeasible_exactly_below_the_bytes_that_are_named(problem: Problem) -> None:
    least = least_bytes(problem)
    assert solve(replace(problem, memory_bytes=least)).plan is not None
    assume(least > 1)
    result = solve(replace(problem, memory_bytes=least - 1))
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("memory_bytes",)
    named = re.search(r"at least (\d+) bytes", result.infeasibility.reason)
    assert named is not None
    assert int(named[1]) == least
    (layer,) = result.infeasibility.layers
    assert repr(problem.layers[layer].name) in result.infeasibility.reason


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"ordered"}))
def test_no_method_finds_what_does_not_fit(method: str) -> None:
    result = solve(replace(TINY, memory_bytes=10), method=method)
    assert result.status is Status.INFEASIBLE
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("memory_bytes",)


@settings(max_examples=60)
@given(short_problems(small_problems(most=1000)), st.data())
def test_one_triple(problem: Problem, data: st.DataObject) -> None:
    """The label search itself, also where the fastest layers would fit."""
    free = replace(problem, memory_bytes=None)
    triple = Triple(*data.draw(configurations(free)).triple)
    engine = Engine(free)
    assert problem.memory_bytes is not None
    memory = Memory(free, problem.memory_bytes)
    found = fitting(engine.layerwise, memory, triple)
    expected = {
        (workers, replicas, -servers): time
        for time, servers, workers, replicas in brute_ranks(problem)
    }
    if found is None:
        assert triple not in expected
        return
    if neuron_oracle.server_bytes(problem, triple.servers) > problem.memory_bytes:
        return
    assert found.complete
    assert all(memory.fits(one.states) for one in found.chosen)
    best = min(engine.exact.epoch(triple, one.states) for one in found.chosen)
    assert best == expected[triple]


@settings(max_examples=25)
@given(problems(max_machines=8, max_layers=4), st.data())
def test_more_memory_never_hurts(problem: Problem, data: st.DataObject) -> None:
    least = least_bytes(problem)
    room = data.draw(st.integers(least, 3 * least))
    more = room + data.draw(st.integers(1, 2 * least))
    times: list[Fraction] = []
    for one in (room, more, None):
        plan = solve(replace(problem, memory_bytes=one)).plan
        assert plan is not None
        times.append(plan.ranking[0].epoch)
    assert times == sorted(times, reverse=True)
