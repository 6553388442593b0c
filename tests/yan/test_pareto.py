"""The front of machines and time."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise, product

import pytest
from hypothesis import HealthCheck, given, settings

from planner.families.yan.configuration import Configuration, LayerChoice, canonical_mapping
from planner.families.yan.family import solve
from planner.families.yan.layers import NeuronLayer
from planner.families.yan.model import estimate
from planner.families.yan.pareto import pareto_front
from planner.families.yan.problem import Constants, Problem
from planner.model.errors import BrokenConstraintError, NotApplicableError
from planner.solving.deadline import Deadline
from tests.yan.yan_strategies import problems

some = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
few = settings(some, max_examples=15)

Triple = tuple[int, int, int]


def network(machines: int = 9) -> Problem:
    layers = (
        NeuronLayer("first", "full", 40, 1200, 1240),
        NeuronLayer("second", "full", 30, 1200, 1230),
        NeuronLayer("last", "full", 10, 300, 310),
    )
    constants = Constants(
        muladd_ns=Fraction(1),
        activation_ns=Fraction(3),
        error_ns=Fraction(2),
        latency_ns=(Fraction(100), Fraction(120)),
        nic_bits_per_s=Fraction(10**10),
        interference=(Fraction(1), Fraction("1.1")),
    )
    return Problem(machines, 2, layers, constants, samples=1000, read_every=10)


def configurations(problem: Problem, workers: int) -> Iterator[tuple[LayerChoice, ...]]:
    """All ways to run the layers on so many workers, under the canonical mapping."""
    each = []
    for layer in problem.layers:
        counts = [
            count
            for count in range(1, min(layer.cuts, workers) + 1)
            if problem.partitions == "all" or count in (1, 2, 4)
        ]
        each.append(
            [
                (p, r, h)
                for p in counts
                for r in range(1, min(problem.max_copies or workers, workers // p) + 1)
                for h in range(1, problem.threads + 1)
            ]
        )
    for chosen in product(*each):
        mappings = canonical_mapping([(p, r) for p, r, _ in chosen], workers)
        yield tuple(
            LayerChoice(p, h, r, mapping)
            for (p, r, h), mapping in zip(chosen, mappings, strict=True)
        )


def by_brute_force(problem: Problem) -> dict[Triple, Fraction]:
    """The least time of every triple that fits, each configuration priced by the model."""
    layers = cache(lambda workers: list(configurations(problem, workers)))
    best: dict[Triple, Fraction] = {}
    for workers, replicas, servers in product(range(1, problem.machines), repeat=3):
        if workers * replicas + servers > problem.machines:
            continue
        times = []
        for chosen in layers(workers):
            try:
                one = estimate(problem, Configuration(servers, replicas, workers, chosen))
            except BrokenConstraintError:
                continue
            times.append(one.epoch)
        if times:
            best[workers, replicas, servers] = min(times)
    return best


tiny = problems(max_machines=4, max_layers=2, max_threads=2)
tiny_and_short = problems(max_machines=4, max_layers=2, max_threads=2, memory=True)


def check_front(problem: Problem) -> None:
    best = by_brute_force(problem)
    expected: list[tuple[int, Fraction]] = []
    for machines in range(2, problem.machines + 1):
        times = [time for (w, r, s), time in best.items() if w * r + s == machines]
        if times and (not expected or min(times) < expected[-1][1]):
            expected.append((machines, min(times)))
    found = pareto_front(problem)
    assert [(one.configuration.machines_used, one.epoch) for one in found] == expected
    for one in found:
        assert estimate(problem, one.configuration).epoch == one.epoch


@few
@given(tiny)
def test_front_is_that_of_all_configurations(problem: Problem) -> None:
    check_front(problem)


@few
@given(tiny_and_short)
def test_front_is_that_of_all_configurations_that_fit(problem: Problem) -> None:
    check_front(problem)


def test_front_counts_a_worker_that_only_reads() -> None:
    """With as many servers as workers an idle worker lets all read side by side."""
    layers = (NeuronLayer("first", "full", 1, 1, 1), NeuronLayer("last", "full", 1, 1, 1))
    constants = Constants(
        muladd_ns=Fraction(1),
        activation_ns=Fraction(1),
        error_ns=Fraction(1),
        latency_ns=(Fraction(1),),
        nic_bits_per_s=Fraction(10**6),
        interference=(Fraction(1),),
    )
    problem = Problem(4, 1, layers, constants, samples=10, read_every=1, max_copies=1)
    front = pareto_front(problem)
    assert front[-1].configuration.triple == (2, 1, 2)
    check_front(problem)


@pytest.mark.slow
@some
@given(problems(max_machines=7, memory=True) | problems(max_machines=7))
def test_front_is_the_best_of_each_number_of_machines(problem: Problem) -> None:
    front = pareto_front(problem)
    for one, more in pairwise(front):
        assert one.configuration.machines_used < more.configuration.machines_used
        assert one.epoch > more.epoch
    at_most: Fraction | None = None
    reached = {one.configuration.machines_used: one.epoch for one in front}
    for machines in range(2, problem.machines + 1):
        plan = solve(replace(problem, machines=machines, top=1), method="exact").plan
        at_most = reached.get(machines, at_most)
        assert at_most == (None if plan is None else plan.ranking[0].epoch)


def test_more_machines_are_worth_something() -> None:
    front = pareto_front(network())
    assert [one.configuration.machines_used for one in front][:2] == [2, 3]
    assert front[0].configuration.triple == (1, 1, 1)
    assert len(front) > 3


def test_a_front_ends_where_the_time_is_up() -> None:
    assert pareto_front(network(), deadline=Deadline(0)) == ()
    whole = pareto_front(network())
    assert pareto_front(network(), deadline=Deadline(1000)) == whole


def test_nothing_where_nothing_fits() -> None:
    for problem in (network(1), replace(network(), memory_bytes=1)):
        assert pareto_front(problem) == ()


def test_machines_of_one_speed_are_alike() -> None:
    problem = network(5)
    twice = replace(problem, machine_speeds=[Fraction(2)] * 5)
    for one in pareto_front(twice):
        assert one.epoch == estimate(twice, one.configuration).epoch
    best = solve(twice, method="exact").plan
    assert best is not None
    assert pareto_front(twice)[-1].epoch == best.ranking[0].epoch


def test_machines_that_differ_are_refused() -> None:
    problem = network(3)
    different = [Fraction(1), Fraction(1), Fraction(2)]
    with pytest.raises(NotApplicableError) as caught:
        pareto_front(replace(problem, machine_speeds=different))
    assert caught.value.path == "machine_speeds"
