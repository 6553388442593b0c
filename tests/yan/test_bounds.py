"""Floating-point tables, bounds and cuts against the model and against everything."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan import Configuration, NeuronLayer, Problem, estimate, layer_program
from planner.families.yan.configuration import Triple
from planner.families.yan.layer_program import Exact, LayerState, best_path
from planner.families.yan.layerwise import Layerwise
from planner.families.yan.problem import choices
from planner.families.yan.search import Engine, configuration_of
from planner.families.yan.tables import Tables
from planner.jsonio import decode_request
from planner.jsonio.yan import problem_of
from planner.solving.deadline import Deadline
from tests.yan.small_problems import TINY
from tests.yan.yan_strategies import any_configurations, configurations, problems

ABOVE = 1 + 1e-12
CLOSE = 1e-12


def states_of(configuration: Configuration) -> list[LayerState]:
    return [
        LayerState(layer.partitions, layer.copies, layer.threads) for layer in configuration.layers
    ]


@settings(max_examples=150)
@given(problems(max_machines=14, min_layers=2, max_layers=2, max_threads=2), st.data())
def test_tables_are_the_model(problem: Problem, data: st.DataObject) -> None:
    tables, exact = Tables(problem), Exact(problem)
    workers = problem.machines - 1
    before, after = (
        data.draw(
            st.lists(st.sampled_from(choices(problem, layer, workers)), min_size=1, max_size=4)
        )
        for layer in problem.layers
    )
    ahead, back = tables.pair(1, before, after)
    for a, first in enumerate(before):
        for b, second in enumerate(after):
            for h in range(problem.threads):
                forward = exact.forward(1, first, LayerState(*second, h + 1))
                backward = exact.backward(0, LayerState(*first, h + 1), second)
                assert ahead[a, b, h] == pytest.approx(float(forward), rel=CLOSE, abs=0)
                assert back[a, b, h] == pytest.approx(float(backward), rel=CLOSE, abs=0)
    for place, some in enumerate((before, after)):
        for choice in some:
            for h in range(problem.threads):
                own = exact.own(place, LayerState(*choice, h + 1))
                ends = tables.ends(place, choice)[h]
                assert ends == pytest.approx(float(own), rel=CLOSE, abs=0)


def convolution(name: str, rows: int, columns: int, pool: int) -> NeuronLayer:
    """One channel, one input, kernel 3 with padding."""
    neurons = rows * columns
    return NeuronLayer(name, "conv", neurons, 9 * neurons, 9, (1, rows, columns), 3, pool=pool)


@pytest.mark.parametrize("rows", [5, 7, 8, 9, 11])
@pytest.mark.parametrize("pools", [(1, 2), (2, 1), (1, 3), (2, 2)])
def test_tables_with_rows_left_over(rows: int, pools: tuple[int, int]) -> None:
    """All pairs of choices of two convolutions whose last bands are larger or smaller."""
    first = convolution("first", rows, 6, pools[0])
    second = convolution("second", first.cuts, 6 // pools[0], pools[1])
    problem = replace(TINY, layers=[first, second], cores=1)
    tables, exact = Tables(problem), Exact(problem)
    before, after = (choices(problem, layer, 8) for layer in problem.layers)
    ahead, back = tables.pair(1, before, after)
    for a, one in enumerate(before):
        for b, other in enumerate(after):
            forward = exact.forward(1, one, LayerState(*other, 1))
            backward = exact.backward(0, LayerState(*one, 1), other)
            assert ahead[a, b, 0] == pytest.approx(float(forward), rel=CLOSE, abs=0)
            assert back[a, b, 0] == pytest.approx(float(backward), rel=CLOSE, abs=0)


@settings(max_examples=150)
@given(problems(max_machines=14, max_layers=4), st.data())
def test_time_of_a_configuration(problem: Problem, data: st.DataObject) -> None:
    configuration = data.draw(configurations(problem))
    triple, states = Triple(*configuration.triple), states_of(configuration)
    epoch = estimate(problem, configuration).epoch
    assert Exact(problem).epoch(triple, states) == epoch
    layerwise = Layerwise(Tables(problem), triple.workers)
    assert layerwise.time(triple, states) == pytest.approx(float(epoch), rel=CLOSE)


@pytest.mark.slow
@settings(max_examples=200)
@given(problems(max_machines=10, max_layers=4), st.data())
def test_bounds_hold_for_every_mapping(problem: Problem, data: st.DataObject) -> None:
    configuration = data.draw(any_configurations(problem))
    triple, states = Triple(*configuration.triple), states_of(configuration)
    epoch = float(estimate(problem, configuration).epoch) * ABOVE
    layerwise = Layerwise(Tables(problem), problem.machines - 1)
    through, least = layerwise.coarse(triple)
    lowest = layerwise.lowest(triple)
    total = 0.0
    for place, state in enumerate(states):
        row = layerwise.options[place].choices.index(state.choice)
        assert through[place][row, state.threads - 1] <= epoch
        total += lowest[place][row, state.threads - 1]
    assert total <= epoch
    assert least <= epoch
    assert layerwise.bound(triple) <= epoch
    for servers in range(min(triple.servers, triple.workers), triple.workers + 1):
        bounds = layerwise.bounds(triple.replicas, triple.workers, servers)
        assert bounds[triple.workers - 1] <= epoch
    optimistic = Engine(problem, optimistic=True).solve(triple)
    assert optimistic is not None
    assert optimistic <= epoch


@settings(max_examples=120)
@given(problems(max_machines=10, max_layers=4), st.data())
def test_optimistic_tables_hold_for_every_mapping(problem: Problem, data: st.DataObject) -> None:
    """Of each layer by itself, not only of whole configurations."""
    configuration = data.draw(any_configurations(problem))
    tables = Tables(problem, optimistic=True)
    found = estimate(problem, configuration).layers
    states = states_of(configuration)
    for place in range(1, len(states)):
        before, state = states[place - 1], states[place]
        ahead, back = tables.pair(place, [before.choice], [state.choice])
        forward = found[place].forward_computation + found[place].forward_communication
        backward = found[place - 1].backward_computation + found[place - 1].backward_communication
        replicas = configuration.replicas
        assert ahead[0, 0, state.threads - 1] / replicas <= float(forward) * ABOVE
        assert back[0, 0, before.threads - 1] / replicas <= float(backward) * ABOVE


@settings(max_examples=120)
@given(problems(max_machines=12, max_layers=4), st.data())
def test_what_is_cut_is_not_missed(problem: Problem, data: st.DataObject) -> None:
    triple = Triple(*data.draw(configurations(problem)).triple)
    layerwise = Layerwise(Tables(problem), problem.machines - 1)
    whole = layerwise.whole_program(triple)
    cut = layerwise.program(triple)
    assert cut.best().epoch == pytest.approx(whole.best().epoch, rel=CLOSE)
    exact = Exact(problem)
    expected, found = best_path(whole, exact, triple), best_path(cut, exact, triple)
    assert expected is not None
    assert found is not None
    assert found[0] == expected[0]
    for epoch, path in (found, expected):
        assert estimate(problem, configuration_of(triple, path)).epoch == epoch


def test_too_many_ties_leave_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the path that rounding prefers is priced, and its time but for rounding is the bound."""
    triple = Triple(2, 1, 1)
    certain, hurried = Engine(TINY), Engine(TINY)
    assert certain.solve(triple) == hurried.solve(triple)
    best = certain.exactly(triple)
    monkeypatch.setattr(layer_program, "MAX_TIED", 0)
    found = hurried.exactly(triple)
    assert found.bound < best.bound == best.epoch <= found.epoch
    assert found.bound >= best.epoch * Fraction(1 - 1e-9)


def test_triples_solved_after_the_deadline_keep_their_bounds() -> None:
    """Quickly solved: some configuration, not always the best, and a bound below the best."""
    file = Path(__file__).parents[2] / "data" / "yan" / "mnist.json"
    given = problem_of(decode_request(file.read_bytes()))
    slow = replace(given.constants, latency_ns=[Fraction(100_000)])
    problem = replace(given, constants=slow, machines=40)
    patient, hasty = Engine(problem), Engine(problem)
    hasty.deadline = hasty.layerwise.deadline = Deadline(1e-9)
    missed = 0
    for workers, replicas in ((39, 1), (20, 1), (13, 2), (1, 38)):
        triple = Triple(workers, replicas, 40 - workers * replicas)
        assert patient.solve(triple) is not None
        assert hasty.solve(triple) is not None
        best, quick = patient.exactly(triple), hasty.exactly(triple)
        assert quick.bound <= best.epoch <= quick.epoch
        missed += quick.epoch > best.epoch
    assert missed


@pytest.mark.slow
@settings(max_examples=60)
@given(problems(max_machines=10), st.integers(1, 12))
def test_search_finds_the_best_triples(problem: Problem, top: int) -> None:
    """Against all triples solved one by one, without bounds between them."""
    engine = Engine(problem)
    result = engine.search(top, Deadline(None))
    found = [solution.epoch for solution in result.solutions]
    layerwise = Layerwise(Tables(problem), problem.machines - 1)
    every = sorted(
        layerwise.whole_program(Triple(workers, replicas, servers)).best().epoch
        for workers in range(1, problem.machines)
        for replicas in range(1, (problem.machines - 1) // workers + 1)
        for servers in range(1, problem.machines - workers * replicas + 1)
    )
    assert len(found) >= min(top, len(every))
    assert found == pytest.approx(every[: len(found)], rel=CLOSE)
    assert result.triples == len(every)
    rest = every[len(found) :]
    assert not rest or result.bound <= rest[0] * ABOVE
