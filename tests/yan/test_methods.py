"""All methods: every plan can be run, costs what it says, and respects its bound."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product
from math import lcm
from unittest.mock import Mock

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from yan_brute_force import assignments
from yan_mappings import best_of_all_mappings
from yan_sample import median, sample
from yan_spread import spread

from planner.families.yan import METHODS, Fixed, LayerChoice, Problem, estimate, family, solve
from planner.families.yan.configuration import Configuration, Triple
from planner.families.yan.greedy import Greedy
from planner.families.yan.layer_program import LayerState
from planner.families.yan.pareto import pareto_front
from planner.families.yan.problem import choices
from planner.families.yan.search import configuration_of
from planner.model.errors import NotApplicableError
from planner.solving.deadline import NEVER
from tests.formats.refused import refused
from tests.present import present
from tests.solved import Solved
from tests.yan import neuron_oracle
from tests.yan import yan_strategies as small
from tests.yan.yan_strategies import TINY, brute_ranks, everything, problems, small_problems, solved

SEARCHING = sorted(set(METHODS) - {"auto", "exact", "ordered"})


@pytest.mark.slow
@pytest.mark.parametrize("speeds", [False, True])
@settings(max_examples=60)
@given(data=st.data())
def test_plans_cost_what_neurons_say_and_bounds_hold(speeds: bool, data: st.DataObject) -> None:
    problem = data.draw(small_problems(memory=data.draw(st.booleans()), speeds=speeds))
    ranks = brute_ranks(problem)
    for method in METHODS:
        with suppress(NotApplicableError):
            result = solve(problem, method=method)
            if result.plan is None:
                assert method.endswith("parallel") or not ranks
                continue
            plan, objective_ns, bound_ns = Solved.of(result)
            assert len(plan.ranking) <= problem.top
            for ranked in plan.ranking:
                assert neuron_oracle.epoch(problem, ranked.configuration) == ranked.epoch
            assert bound_ns <= -int(-ranks[0][0] // 1)
            assert plan.any_mapping_bound_ns is None or plan.any_mapping_bound_ns <= objective_ns
            if method != "greedy":  # whose mapping is another
                assert plan.ranking[0].epoch >= ranks[0][0]


@pytest.mark.slow
@settings(max_examples=25)
@given(small_problems(most=100), st.data())
def test_no_method_beats_all_mappings(problem: Problem, data: st.DataObject) -> None:
    best = best_of_all_mappings(problem)
    assert estimate(problem, data.draw(small.any_configurations(problem))).epoch >= best
    for method in ("exact", "greedy"):
        plan = solved(problem, method).plan
        assert plan.ranking[0].epoch >= best
        assert present(plan.any_mapping_bound_ns) <= -int(-best // 1)


DIFFERENT = replace(TINY, machine_speeds=[Fraction(speed) for speed in (1, 1, 2, 1)])


@pytest.mark.parametrize(
    ("problem", "method", "path"),
    [
        *((replace(TINY, fixed=(Fixed(1, 1, 1),)), method, "fixed") for method in SEARCHING),
        *((DIFFERENT, method, "machine_speeds") for method in (*SEARCHING, "exact")),
        (DIFFERENT, None, "machine_speeds"),
    ],
)
def test_what_does_not_apply_is_refused(problem: Problem, method: str | None, path: str) -> None:
    with refused(path, "", NotApplicableError):
        pareto_front(problem) if method is None else solve(problem, method=method)


KINDS: dict[str, Callable[[Configuration], bool]] = {
    "data_parallel": lambda one: one.workers_per_replica == 1,
    "model_parallel": lambda one: one.replicas == 1 and {it.copies for it in one.layers} == {1},
}


@pytest.mark.slow
@settings(max_examples=40)
@given(small_problems(memory=True), st.booleans())
def test_baselines_are_the_best_of_their_kind(problem: Problem, short: bool) -> None:
    if not short:
        problem = replace(problem, memory_bytes=None)
    every = everything(problem)
    for method, kind in KINDS.items():
        result = solve(problem, method=method)
        times = [time for time, one in every if kind(one)]
        assert (result.plan is None) == (not times)
        if times:
            plan, _, bound_ns = Solved.of(result)
            assert kind(plan.configuration)
            assert plan.ranking[0].epoch == min(times)
            assert bound_ns <= -(-min(time for time, _ in every) // 1)


@pytest.mark.slow
@settings(max_examples=25)
@given(small_problems(most=150, speeds=True))
def test_assignments_leave_nothing_out(problem: Problem) -> None:
    """Against all permutations of machines, for the choices of the best plan."""
    assume(not problem.uniform)
    for ranked in Solved.of(small.brute_result(problem)).plan.ranking[:2]:
        one = ranked.configuration
        every = permutations(range(problem.machines), one.machines_used)
        times, kinds = (
            {estimate(problem, replace(one, machines=machines)).epoch for machines in used}
            for used in (every, assignments(problem, *one.triple))
        )
        assert min(times) == ranked.epoch
        assert kinds == times


# The greedy method.


def greedily_mapped(problem: Problem, layers: list[LayerChoice], workers: int) -> list[LayerChoice]:
    """Layers mapped by the rule, with what is fetched counted unit by unit, sample by sample."""
    done: list[LayerChoice] = []
    for place, layer in enumerate(layers):
        mapping = [[-1] * layer.copies for _ in range(layer.partitions)]
        free = list(range(workers))
        for p in range(layer.partitions):
            for r in range(layer.copies):
                worker = free[0]
                if place:
                    worker = min(
                        free, key=lambda one: fetched(problem, place, done[-1], layer, p, r, one)
                    )
                mapping[p][r] = worker
                free.remove(worker)
        done.append(replace(layer, mapping=tuple(map(tuple, mapping))))
    return done


def fetched(
    problem: Problem, place: int, before: LayerChoice, layer: LayerChoice, p: int, r: int, on: int
) -> int:
    previous, samples = problem.layers[place - 1], lcm(layer.copies, before.copies)
    units = neuron_oracle.needed_units(previous, problem.layers[place], layer.partitions)[p]
    part = neuron_oracle.unit_parts(previous, before.partitions)
    seen = range(r, samples, layer.copies)
    return sum(neuron_oracle.missed(before, part, units, sample, on) for sample in seen)


@settings(max_examples=25)
@given(problems(max_machines=5, min_layers=2, max_layers=2, max_threads=2), st.data())
def test_greedy_is_the_best_greedy_of_two_layers(problem: Problem, data: st.DataObject) -> None:
    """With two layers no prefix has a choice, so the program misses nothing."""
    workers = data.draw(st.integers(1, problem.machines - 1))
    triple = Triple(workers, 1, problem.machines - workers)
    found = present(Greedy(problem).path_of(triple))
    priced = estimate(problem, configuration_of(triple, found.states, found.mappings)).epoch
    assert found.epoch == pytest.approx(float(priced), rel=1e-12)
    times = []
    for p, r in choices(problem, problem.layers[0], workers):
        for q, s in choices(problem, problem.layers[1], workers):
            drawn = [LayerChoice(p, 1, r, ()), LayerChoice(q, 1, s, ())]
            mapped = greedily_mapped(problem, drawn, workers)
            for threads in product(range(1, problem.threads + 1), repeat=2):
                layers = map(lambda layer, h: replace(layer, threads=h), mapped, threads)
                one = Configuration(triple.servers, 1, workers, tuple(layers))
                times.append(estimate(problem, one).epoch)
    assert priced == min(times)


@settings(max_examples=60)
@given(problems(max_machines=9, min_layers=2, max_layers=4), st.data())
def test_greedy_maps_any_layers_by_its_rule_and_knows_its_price(
    problem: Problem, data: st.DataObject
) -> None:
    """Also those that are never the best."""
    solver, workers = Greedy(problem), data.draw(st.integers(1, problem.machines - 1))
    triple = Triple(workers, (problem.machines - 1) // workers, 1)
    drawn = [data.draw(st.sampled_from(choices(problem, one, workers))) for one in problem.layers]
    states = [LayerState(p, r, 1) for p, r in drawn]
    programs = solver.layerwise.only(triple, states), solver.layerwise.whole_program(triple)
    paths = *(solver.path(program, workers) for program in programs), solver.path_of(triple)
    first, _, best = map(present, paths)
    assert list(first.states) == states
    assert solver.solve(triple) == best.epoch
    for path in map(present, paths):
        found = configuration_of(triple, path.states, path.mappings)
        assert path.epoch == pytest.approx(float(estimate(problem, found).epoch), rel=1e-12)
        assert greedily_mapped(problem, list(found.layers), workers) == list(found.layers)


@pytest.mark.slow
def test_a_sample_of_all_configurations_is_uniform() -> None:
    problem = replace(TINY, memory_bytes=700)
    every = everything(problem)
    count = 10_000
    drawn = sample(problem, count, 1, NEVER)
    assert len(drawn.order) == count
    seen = Counter(drawn.configuration(rank) for rank in range(count))
    expected = count / len(every)
    for _, one in every:
        assert abs(seen.pop(one, 0) - expected) < 6 * expected**0.5
    assert not seen


def test_the_spread_of_a_small_problem() -> None:
    """The worst configuration, and the median of a sample, against all configurations."""
    times = sorted(time for time, _ in everything(TINY))
    found = spread(TINY)
    assert (found.best, found.worst) == (times[0], times[-1])
    assert found.best < found.median_low <= found.median <= found.median_high < found.worst
    middle = times[(len(times) - 1) // 2]
    assert found.median_low <= middle <= found.median_high
    assert found.sampled == 10_000
    assert Solved.of(small.as_method(median, TINY)).plan.ranking[0].epoch == found.median
    assert spread(TINY, samples=10, seed=1).sampled == 10


def test_a_configuration_that_is_asked_for_often_is_priced_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else 800 of them take longer than a short limit allows, behind the last look at the clock."""
    counted = Mock(side_effect=estimate)
    monkeypatch.setattr(family, "estimate", counted)
    often = replace(TINY, fixed=[Fixed(1, 2, 1), Fixed(1, 1, 1)] * 50)
    assert len(solved(often, "exact").plan.ranking) == 100
    assert counted.call_count == 2
