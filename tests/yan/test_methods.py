"""All methods: every plan can be run, costs what it says, and respects its bound."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import comb, lcm

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.deadline import Deadline
from planner.errors import BrokenConstraintError, InvalidInputError, NotApplicableError
from planner.results import Status
from planner.yan import METHODS, Configuration, Fixed, LayerChoice, Plan, Problem, check, estimate
from planner.yan import brute_force as brute
from planner.yan import solve, spread
from planner.yan.comparison import compare
from planner.yan.exact import Engine, configuration_of
from planner.yan.greedy import Greedy
from planner.yan.layerwise import Triple, state_at
from planner.yan.mapping import Mapping
from planner.yan.tables import choices
from tests.yan import neuron_oracle
from tests.yan.small_problems import TINY, brute_ranks, small_problems, with_machines
from tests.yan.yan_strategies import problems

SEARCHING = sorted(set(METHODS) - {"auto", "exact", "ordered"})
ALIKE = sorted(set(METHODS) - {"auto", "ordered", "brute_force"})
CANONICAL = ("exact", "brute_force", "data_parallel", "model_parallel", "median", "worst")


def planned(problem: Problem, method: str) -> Plan:
    plan = solve(problem, method=method).plan
    assert plan is not None
    return plan


def usable(method: str) -> None:
    if method in ("auto", "ordered"):
        pytest.importorskip("planner.yan.ordered")


def everything(problem: Problem) -> list[tuple[Fraction, Configuration]]:
    """Every configuration that fits, and its time."""
    found = []
    for one in brute.configurations(problem):
        try:
            found.append((estimate(problem, one).epoch, one))
        except BrokenConstraintError:
            continue
    return found


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("speeds", [False, True])
@settings(max_examples=20)
@given(data=st.data())
def test_every_plan_can_be_run_and_costs_what_it_says(
    method: str, speeds: bool, data: st.DataObject
) -> None:
    usable(method)
    problem = data.draw(small_problems(memory=data.draw(st.booleans()), speeds=speeds))
    try:
        result = solve(problem, method=method)
    except NotApplicableError:
        assert not problem.uniform or problem.memory_bytes is not None
        return
    if result.plan is None:
        assert result.status is Status.INFEASIBLE
        assert method.endswith("parallel") or not brute_ranks(problem)
        return
    plan = result.plan
    check(problem, plan.configuration)
    assert plan.ranking[0].configuration == plan.configuration
    assert len(plan.ranking) <= problem.top
    for one in plan.ranking:
        assert neuron_oracle.price(problem, one.configuration).epoch == one.epoch
    assert result.objective_ns == -int(-plan.ranking[0].epoch // 1)
    assert result.lower_bound_ns is not None
    assert result.lower_bound_ns <= result.objective_ns
    if plan.any_mapping_bound_ns is not None:
        assert plan.any_mapping_bound_ns <= result.objective_ns
    if method in CANONICAL:
        best = brute_ranks(problem)[0][0]
        assert plan.ranking[0].epoch >= best
        if not method.endswith("parallel"):
            assert result.lower_bound_ns <= -int(-best // 1)


@pytest.mark.parametrize("method", sorted(METHODS))
@settings(max_examples=15)
@given(data=st.data())
def test_a_time_limit_leaves_a_plan(method: str, data: st.DataObject) -> None:
    usable(method)
    problem = data.draw(problems(max_machines=9, memory=data.draw(st.booleans())))
    try:
        result = solve(problem, method=method, time_limit=1e-9)
    except NotApplicableError:
        assert method == "brute_force" or problem.memory_bytes is not None
        return
    whole = solve(problem, method="exact")
    if result.plan is None:
        assert result.status is Status.INFEASIBLE
        assert method.endswith("parallel") or whole.plan is None
        return
    assert result.objective_ns is not None
    assert result.lower_bound_ns is not None
    best = whole.objective_ns
    if method.endswith("parallel"):
        best = solve(problem, method=method).objective_ns
    assert best is not None
    assert result.lower_bound_ns <= best
    assert result.objective_ns >= best or method in ("greedy", "auto", "ordered")
    assert result.status is not Status.INFEASIBLE
    if result.timed_out:
        assert result.status in (Status.TIME_LIMIT, Status.OPTIMAL)


@pytest.mark.parametrize("method", SEARCHING)
def test_only_some_methods_price_what_is_given(method: str) -> None:
    with pytest.raises(NotApplicableError) as caught:
        solve(replace(TINY, fixed=(Fixed(1, 1, 1),)), method=method)
    assert caught.value.path == "fixed"


@pytest.mark.parametrize("method", ALIKE)
@pytest.mark.parametrize("field", ["machine_speeds", "nic_speeds"])
def test_most_methods_need_machines_that_are_alike(method: str, field: str) -> None:
    speeds = [Fraction(1), Fraction(1), Fraction(2), Fraction(1)]
    with pytest.raises(NotApplicableError) as caught:
        solve(replace(TINY, **{field: speeds}), method=method)
    assert caught.value.path == field


@settings(max_examples=40)
@given(small_problems(memory=True), st.booleans())
def test_baselines_are_the_best_of_their_kind(problem: Problem, short: bool) -> None:
    if not short:
        problem = replace(problem, memory_bytes=None)
    kinds = {
        "data_parallel": lambda one: one.workers_per_replica == 1,
        "model_parallel": lambda one: one.replicas == 1 and {x.copies for x in one.layers} == {1},
    }
    every = everything(problem)
    for method, kind in kinds.items():
        result = solve(problem, method=method)
        times = [time for time, one in every if kind(one)]
        assert (result.plan is None) == (not times)
        if result.plan is not None:
            assert kind(result.plan.configuration)
            assert result.plan.ranking[0].epoch == min(times)
            assert result.lower_bound_ns == result.objective_ns


@settings(max_examples=25)
@given(small_problems(most=150, speeds=True))
def test_assignments_leave_nothing_out(problem: Problem) -> None:
    """Against all permutations of machines, for the choices of the best plan."""
    from itertools import permutations

    assume(not problem.uniform)
    plan = planned(problem, "brute_force")
    for ranked in plan.ranking[:2]:
        one = ranked.configuration
        used = permutations(range(problem.machines), one.machines_used)
        times = [estimate(problem, replace(one, machines=machines)).epoch for machines in used]
        assert min(times) == ranked.epoch
        kinds = {
            estimate(problem, replace(one, machines=machines)).epoch
            for machines in brute.assignments(problem, *one.triple)
        }
        assert kinds == set(times)


def test_brute_force_refuses_what_is_too_large() -> None:
    for machines in (30, 3000):
        with pytest.raises(NotApplicableError) as caught:
            solve(replace(TINY, machines=machines), method="brute_force")
        assert caught.value.path == "method"
    different = replace(TINY, machines=12, machine_speeds=[Fraction(1 + m) for m in range(12)])
    with pytest.raises(NotApplicableError):
        solve(different, method="brute_force")


@settings(max_examples=30)
@given(st.data())
def test_names_of_machines_change_nothing(data: st.DataObject) -> None:
    pytest.importorskip("planner.yan.ordered")
    problem = data.draw(problems(max_machines=6, speeds=True))
    order = data.draw(st.permutations(range(problem.machines)))
    renamed = replace(
        problem,
        machine_speeds=problem.machine_speeds and [problem.machine_speeds[one] for one in order],
        nic_speeds=problem.nic_speeds and [problem.nic_speeds[one] for one in order],
    )
    first, second = solve(problem), solve(renamed)
    assert first.objective_ns == second.objective_ns
    assert first.lower_bound_ns == second.lower_bound_ns
    assert first.plan is not None
    assert second.plan is not None
    assert [one.epoch for one in first.plan.ranking] == [one.epoch for one in second.plan.ranking]


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
    previous = problem.layers[place - 1]
    units = neuron_oracle.needed_units(previous, problem.layers[place], layer.partitions)[p]
    holder = neuron_oracle.unit_parts(previous, before.partitions)
    return sum(
        before.mapping[holder[unit]][sample % before.copies] != on
        for sample in range(r, lcm(layer.copies, before.copies), layer.copies)
        for unit in units
    )


@settings(max_examples=40)
@given(problems(max_machines=7, max_layers=4), st.booleans())
def test_greedy_follows_its_rule(problem: Problem, short: bool) -> None:
    if short:
        most = sum(
            neuron_oracle.segment_bytes(problem, p, 1, 1) for p in range(len(problem.layers))
        )
        problem = replace(problem, memory_bytes=max(most, neuron_oracle.server_bytes(problem, 1)))
    plan = planned(problem, "greedy")
    for one in plan.ranking:
        layers, workers = list(one.configuration.layers), one.configuration.workers_per_replica
        assert greedily_mapped(problem, layers, workers) == layers


@settings(max_examples=25)
@given(problems(max_machines=5, min_layers=2, max_layers=2, max_threads=2), st.data())
def test_greedy_is_the_best_greedy_of_two_layers(problem: Problem, data: st.DataObject) -> None:
    """With two layers no prefix has a choice, so the program misses nothing."""
    workers = data.draw(st.integers(1, problem.machines - 1))
    triple = Triple(workers, 1, problem.machines - workers)
    found = Greedy(problem, Deadline(None)).solve(triple)
    assert found is not None
    priced = estimate(problem, found[1].configuration(triple)).epoch
    assert found[0] == pytest.approx(float(priced), rel=1e-12)
    times = []
    for p, r in choices(problem, problem.layers[0], workers):
        for q, s in choices(problem, problem.layers[1], workers):
            drawn = [LayerChoice(p, 1, r, ()), LayerChoice(q, 1, s, ())]
            mapped = greedily_mapped(problem, drawn, workers)
            for h in range(1, problem.threads + 1):
                for k in range(1, problem.threads + 1):
                    layers = (replace(mapped[0], threads=h), replace(mapped[1], threads=k))
                    one = Configuration(triple.servers, 1, workers, layers)
                    times.append(estimate(problem, one).epoch)
    assert priced == min(times)


@settings(max_examples=30)
@given(problems(max_machines=9, min_layers=2, max_layers=4), st.data())
def test_greedy_knows_its_price(problem: Problem, data: st.DataObject) -> None:
    solver = Greedy(problem, Deadline(None))
    workers = data.draw(st.integers(1, problem.machines - 1))
    triple = Triple(workers, (problem.machines - 1) // workers, 1)
    program = solver.engine.layerwise.whole_program(triple)
    for path in (solver.path(program, workers), solver.solve(triple)[1]):  # type: ignore[index]
        epoch = estimate(problem, path.configuration(triple)).epoch
        assert path.epoch == pytest.approx(float(epoch), rel=1e-12)
    assert solver.solve(triple)[0] <= path.epoch  # type: ignore[index]


# The spread.


@settings(max_examples=40)
@given(small_problems(memory=True), st.booleans())
def test_worst_is_the_worst(problem: Problem, short: bool) -> None:
    if not short:
        problem = replace(problem, memory_bytes=None)
    every = everything(problem)
    try:
        result = solve(problem, method="worst")
    except NotApplicableError as error:
        assert error.path == "memory_bytes"
        assert short
        return
    assert (result.plan is None) == (not every)
    if result.plan is not None:
        assert result.plan.ranking[0].epoch == max(time for time, _ in every)


def test_worst_refuses_what_takes_too_long() -> None:
    with pytest.raises(NotApplicableError) as caught:
        solve(replace(TINY, machines=5000, layers=TINY.layers[1:]), method="worst")
    assert caught.value.path == "method"


@pytest.mark.parametrize("memory", [None, 700])
def test_sample_is_uniform(memory: int | None) -> None:
    problem = replace(TINY, memory_bytes=memory)
    every = everything(problem)
    count = 20_000
    drawn = spread._sample(problem, count, 1, Deadline(None))
    assert len(drawn.order) == count
    seen = Counter(drawn.configuration(rank) for rank in range(count))
    expected = count / len(every)
    for _, one in every:
        assert abs(seen.pop(one, 0) - expected) < 6 * expected**0.5
    assert not seen


@settings(max_examples=30)
@given(problems(max_machines=9, max_layers=4), st.integers(0, 3))
def test_samples_are_priced_like_the_model(problem: Problem, seed: int) -> None:
    drawn = spread._sample(problem, 40, seed, Deadline(None))
    times = spread._times(drawn.engine, drawn.triples, np.array(drawn.states))
    options = drawn.engine.layerwise.options
    for which, triple in enumerate(drawn.triples):
        states = [
            state_at(one.choices, *state)
            for one, state in zip(options, drawn.states[which], strict=True)
        ]
        epoch = estimate(problem, configuration_of(triple, states)).epoch
        assert times[which] == pytest.approx(float(epoch), rel=1e-12)
    assert [times[which] for which in drawn.order] == sorted(times)


def test_spread_of_a_small_problem() -> None:
    times = sorted(time for time, _ in everything(TINY))
    found = spread.spread(TINY)
    assert (found.best, found.worst) == (times[0], times[-1])
    assert found.best < found.median_low <= found.median <= found.median_high < found.worst
    middle = times[(len(times) - 1) // 2]
    assert found.median_low <= middle <= found.median_high
    assert found.sampled == 10_000
    assert planned(TINY, "median").ranking[0].epoch == found.median
    assert spread.spread(TINY, samples=10, seed=1).sampled == 10


@given(st.integers(6, 300))
def test_interval_of_the_median(count: int) -> None:
    low, high = spread._interval(count)
    assert low + high == count - 1

    def missed(rank: int) -> Fraction:
        """At most so many of the sample are below the median."""
        return Fraction(sum(comb(count, below) for below in range(rank + 1)), 2**count)

    assert 2 * missed(low) <= Fraction(1, 20)
    assert 2 * missed(low + 1) > Fraction(1, 20)


# Comparison and import.


def test_comparison_has_every_method() -> None:
    named: list[str] = []
    methods = [method for method in METHODS if method not in ("auto", "ordered")]
    found = compare(with_machines(TINY, 3), methods=methods, progress=named.append)
    assert named == methods
    assert {row.result.method for row in found.rows} == set(methods)
    times = [row.result.objective_ns for row in found.rows]
    assert times == sorted(times)  # type: ignore[type-var]
    for row in found.rows:
        assert row.evaluation is not None
        assert row.evaluation.epoch_ns == row.result.objective_ns
    large = compare(replace(TINY, machines=40), methods=["exact", "brute_force"])
    assert [name for name, _ in large.left_out] == ["brute_force"]
    with pytest.raises(InvalidInputError):
        compare(TINY, methods=["no_such"])


def test_import_needs_no_numpy() -> None:
    code = "import sys, planner.yan; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
