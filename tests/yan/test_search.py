"""The search for triples: tables and bounds against the model, its order, and the Pareto front."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan import METHODS, NeuronLayer, Problem, estimate, layer_program, solve
from planner.families.yan.configuration import Configuration, Space, Triple
from planner.families.yan.exact import exact
from planner.families.yan.layer_program import Exact, LayerState, best_path
from planner.families.yan.layerwise import Layerwise
from planner.families.yan.pareto import pareto_front
from planner.families.yan.problem import choices
from planner.families.yan.search import Engine, configuration_of, search
from planner.families.yan.tables import Tables
from planner.jsonio import decode_request
from planner.jsonio.yan import problem_of
from planner.solving.deadline import NEVER, Deadline
from tests.patience import Patience
from tests.present import present
from tests.yan.yan_strategies import TINY, alike, any_configurations, configurations, problems

ABOVE = 1 + 1e-12
CLOSE = 1e-12

# Floating-point tables, bounds and cuts against the model and against everything.


def states_of(configuration: Configuration) -> tuple[Triple, list[LayerState]]:
    states = (LayerState(one.partitions, one.copies, one.threads) for one in configuration.layers)
    return Triple(*configuration.triple), list(states)


def convolution(name: str, rows: int, columns: int, pool: int) -> NeuronLayer:
    """One channel, one input, kernel 3 with padding."""
    neurons = rows * columns
    return NeuronLayer(name, "conv", neurons, 9 * neurons, 9, (1, rows, columns), 3, pool=pool)


@pytest.mark.parametrize("rows", [7, 8, 11])
@pytest.mark.parametrize("pools", [(1, 2), (2, 1), (1, 3), (2, 2)])
def test_tables_with_rows_left_over_are_the_model(rows: int, pools: tuple[int, int]) -> None:
    """All pairs of choices of two convolutions whose last bands are larger or smaller."""
    first = convolution("first", rows, 6, pools[0])
    second = convolution("second", first.cuts, 6 // pools[0], pools[1])
    problem = replace(TINY, layers=[first, second], cores=1)
    before, after = (choices(problem, layer, 8) for layer in problem.layers)
    tables, exact = Tables(problem), Exact(problem)
    ahead, back = tables.pair(1, before, after)
    for a, one in enumerate(before):
        for b, other in enumerate(after):
            forward = exact.forward(1, one, LayerState(*other, 1))
            backward = exact.backward(0, LayerState(*one, 1), other)
            assert ahead[a, b, 0] == pytest.approx(float(forward), rel=CLOSE, abs=0)
            assert back[a, b, 0] == pytest.approx(float(backward), rel=CLOSE, abs=0)
    for place, some in enumerate((before, after)):
        for choice in some:
            own = exact.own(place, LayerState(*choice, 1))
            ends = tables.ends(place, choice)[0]
            assert ends == pytest.approx(float(own), rel=CLOSE, abs=0)


@settings(max_examples=250)
@given(problems(max_machines=14, max_layers=4), st.data())
def test_programs_know_the_time_of_a_configuration_and_miss_nothing_by_cuts(
    problem: Problem, data: st.DataObject
) -> None:
    configuration = data.draw(configurations(problem))
    triple, states = states_of(configuration)
    epoch, exact = estimate(problem, configuration).epoch, Exact(problem)
    assert exact.epoch(triple, states) == epoch
    layerwise = Layerwise(Tables(problem), problem.machines - 1)
    assert layerwise.time(triple, states) == pytest.approx(float(epoch), rel=CLOSE)
    whole, cut = layerwise.whole_program(triple), layerwise.program(triple)
    assert cut.best().epoch == pytest.approx(whole.best().epoch, rel=CLOSE)
    expected, found = (present(best_path(one, exact, triple)) for one in (whole, cut))
    assert found[0] == expected[0]
    for epoch, path in (found, expected):
        assert estimate(problem, configuration_of(triple, path)).epoch == epoch


@pytest.mark.slow
@settings(max_examples=200)
@given(problems(max_machines=10, max_layers=4), st.data())
def test_bounds_and_optimistic_tables_hold_for_every_mapping(
    problem: Problem, data: st.DataObject
) -> None:
    """Tables of each layer by itself, not only of whole configurations."""
    configuration = data.draw(any_configurations(problem))
    triple, states = states_of(configuration)
    priced = estimate(problem, configuration)
    epoch = float(priced.epoch) * ABOVE
    layerwise = Layerwise(Tables(problem), problem.machines - 1)
    through, least = layerwise.coarse(triple)
    lowest = layerwise.lowest(triple)
    total = 0.0
    for place, state in enumerate(states):
        row = layerwise.options[place].choices.index(state.choice)
        assert through[place][row, state.threads - 1] <= epoch
        total += lowest[place][row, state.threads - 1]
    assert max(total, least, layerwise.bound(triple)) <= epoch
    for servers in range(min(triple.servers, triple.workers), triple.workers + 1):
        bounds = layerwise.bounds(triple.replicas, triple.workers, servers)
        assert bounds[triple.workers - 1] <= epoch
    assert present(Engine(problem, optimistic=True).solve(triple)) <= epoch
    tables, found = Tables(problem, optimistic=True), priced.layers
    for place, (before, state) in enumerate(pairwise(states)):
        ahead, back = tables.pair(place + 1, [before.choice], [state.choice])
        forward = found[place + 1].forward_computation + found[place + 1].forward_communication
        backward = found[place].backward_computation + found[place].backward_communication
        at_most = triple.replicas * ABOVE
        assert ahead[0, 0, state.threads - 1] <= float(forward) * at_most
        assert back[0, 0, before.threads - 1] <= float(backward) * at_most


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


# The order in which triples are looked at, on made-up times that are hard to tell apart.


ERROR = 1e-12
TIMES = st.sampled_from([1.0, 1.0, 1.0 + 2e-15, 1.0 - 2e-15, 1.5, 2.0, 2.0 + 4e-15, 3.0])


@st.composite
def made_up(
    draw: st.DrawFn, *, everything_fits: bool = False
) -> tuple[Space, dict[Triple, float | None], Any]:
    """A space, the time of each triple (None if nothing fits), and bounds of them."""
    space = Space(
        machines=draw(st.integers(2, 7)),
        fewest_servers=draw(st.integers(1, 2)),
        most_workers=draw(st.integers(1, 7)),
        most_replicas=draw(st.integers(1, 7)),
    )
    times: dict[Triple, float] = {}
    least: dict[tuple[int, int], float] = {}
    for workers in range(1, space.most_workers + 1):
        for replicas in range(1, space.most_replicas + 1):
            top = space.machines - workers * replicas
            time = draw(TIMES)
            least[workers, replicas] = time
            for servers in range(top, space.fewest_servers - 1, -1):
                times[Triple(workers, replicas, servers)] = time
                time = max(time, draw(TIMES))  # fewer servers never cost less
    sure = draw(st.sampled_from([0.3, 0.9, 1.0]))
    nothing: set[Triple] = set()
    if times and not everything_fits:
        nothing = draw(st.sets(st.sampled_from(sorted(times)), max_size=2))
    fits = {one: None if one in nothing else time for one, time in times.items()}
    layerwise = SimpleNamespace(
        tables=SimpleNamespace(error=ERROR),
        bounds=lambda replicas, most, _: [
            0.2 * least[workers, replicas] for workers in range(1, most + 1)
        ],
        bound=lambda triple: 0.25 * times[triple],
        coarse=lambda triple: (None, sure * times[triple]),
    )
    return space, fits, layerwise


@given(made_up(), st.integers(1, 12))
def test_everything_up_to_the_last_is_found(made: Any, top: int) -> None:
    space, times, layerwise = made
    result = search(layerwise, space, times.__getitem__, top, NEVER)
    fitting = {one: time for one, time in times.items() if time is not None}
    # One that does not fit hides those with fewer servers: they do not fit either.
    hidden = {
        one
        for one in fitting
        if any(
            time is None and other[:2] == one[:2] and other.servers > one.servers
            for other, time in times.items()
        )
    }
    every = sorted(time for one, time in fitting.items() if one not in hidden)
    found = [solution.triple for solution in result.solutions]
    assert len(set(found)) == len(found)
    assert [one.epoch for one in result.solutions] == [fitting[triple] for triple in found]
    last = every[min(top, len(every)) - 1] if every else 0.0
    for triple in set(fitting) - hidden:
        assert triple in found or fitting[triple] > last * (1 + 2 * ERROR)
        assert triple in found or result.bound <= fitting[triple] * (1 + 2 * ERROR)
    assert len(found) >= min(top, len(every))
    assert result.triples == len(times)
    assert not result.timed_out


@given(made_up(everything_fits=True), st.integers(1, 12), st.integers(0, 30))
def test_the_bound_holds_for_what_time_did_not_allow(made: Any, top: int, looks: int) -> None:
    space, times, layerwise = made
    result = search(layerwise, space, times.__getitem__, top, Patience(looks))
    found = {solution.triple for solution in result.solutions}
    assert found or not times
    for triple in set(times) - found:
        assert result.bound <= times[triple] * (1 + 2 * ERROR)


def test_bounds_hold_however_early_the_search_ends() -> None:
    """One triple may be solved, and a better one not looked at yet."""
    problem = replace(TINY, machines=9)
    best = exact(problem, NEVER).lower_bound
    assert best is not None
    proven = set()
    for looks in (0, *range(40, 140, 4)):
        outcome = exact(problem, Patience(looks))
        bound, plan = outcome.lower_bound, present(outcome.plan)
        assert bound is not None
        assert bound <= best <= plan.ranking[0].epoch
        assert plan.explored.triples_cut <= plan.explored.triples
        proven.add(bound if outcome.timed_out else None)
    assert 0 in proven  # there was no time for anything
    for method in ("greedy", "ordered"):
        assert METHODS[method](problem, Patience(0)).timed_out
    assert len(proven - {None, 0}) > 1  # the time was up in the middle of it, too


# The front of machines and time.


def network(machines: int = 9) -> Problem:
    layers = (
        NeuronLayer("first", "full", 40, 1200, 1240),
        NeuronLayer("second", "full", 30, 1200, 1230),
        NeuronLayer("last", "full", 10, 300, 310),
    )
    times: dict[str, Any] = {"activation_ns": 3, "error_ns": 2, "latency_ns": (100, 120)}
    constants = alike(1, nic=10**10, **times, interference=(1, 1.1))
    return Problem(machines, 2, layers, constants, samples=1000, read_every=10)


def hold_against_the_best(problem: Problem) -> None:
    """Check the front against the exact method's plans for each number of machines."""
    front = pareto_front(problem)
    for one, more in pairwise(front):
        assert one.configuration.machines_used < more.configuration.machines_used
        assert one.epoch > more.epoch
    assert all(estimate(problem, one.configuration).epoch == one.epoch for one in front)
    at_most: Fraction | None = None
    reached = {one.configuration.machines_used: one.epoch for one in front}
    for machines in range(2, problem.machines + 1):
        speeds = problem.machine_speeds and problem.machine_speeds[:machines]
        fewer = replace(problem, machines=machines, machine_speeds=speeds, top=1)
        plan = solve(fewer, method="exact").plan
        at_most = reached.get(machines, at_most)
        assert at_most == (None if plan is None else plan.ranking[0].epoch)


@pytest.mark.slow
@settings(max_examples=60)
@given(problems(max_machines=7, memory=True) | problems(max_machines=7))
def test_front_is_the_best_of_each_number_of_machines(problem: Problem) -> None:
    hold_against_the_best(problem)


def test_machines_of_one_speed_are_alike() -> None:
    hold_against_the_best(replace(network(5), machine_speeds=[Fraction(2)] * 5))


def test_front_counts_a_worker_that_only_reads() -> None:
    """With as many servers as workers an idle worker lets all read side by side."""
    layers = [NeuronLayer(name, "full", 1, 1, 1) for name in ("first", "last")]
    problem = Problem(4, 1, layers, alike(1, nic=10**6), samples=10, read_every=1, max_copies=1)
    assert pareto_front(problem)[-1].configuration.triple == (2, 1, 2)
    hold_against_the_best(problem)


def test_more_machines_are_worth_something_while_there_is_time() -> None:
    front = pareto_front(network(), deadline=Deadline(1000))
    assert [one.configuration.machines_used for one in front][:2] == [2, 3]
    assert front[0].configuration.triple == (1, 1, 1)
    assert len(front) > 3
    assert pareto_front(network()) == front
    # Bounds are worked out no longer than there is time, which is up from the third look on.
    soon = Mock(is_set=Mock(side_effect=[False, False, True]))
    assert pareto_front(network(), deadline=Deadline(None, soon)) == ()
    assert pareto_front(network(), deadline=Deadline(0)) == ()
    for nothing in (network(1), replace(network(), memory_bytes=1)):
        assert pareto_front(nothing) == ()
