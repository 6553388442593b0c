"""What scenarios make of whole iterations, prices found event by event, and advice."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families import iteration
from planner.families.iteration import ITERATION, Plan, Problem
from planner.model.clusters import Cluster, Nic
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph
from planner.model.topologies import Rails
from planner.model.validation import MAX_VALUE
from planner.solving.advice import advise
from planner.solving.deadline import NEVER
from planner.solving.scenarios import Scenario
from tests.iteration.iteration_strategies import problems
from tests.iteration.making import chain as graph_of
from tests.iteration.making import on_switch
from tests.iteration.pricing import lasts

MEBIBYTE = 2**20


@st.composite
def spread_problems(draw: st.DrawFn, *, one_order: bool = False) -> Problem:
    problem = draw(problems(max_parameters=3, one_order=one_order))
    ops = (replace(op, spread_ns=draw(st.integers(0, 30))) for op in problem.graph.ops)
    return replace(problem, graph=Graph(tuple(ops), problem.graph.parameters))


def takes(problem: Problem, plan: Plan, scenario: Scenario) -> Fraction:
    """What a plan lasts in a scenario."""
    return lasts(ITERATION.perturb(problem, scenario), plan)


def result_of(problem: Problem, method: str) -> int | None:
    try:
        return iteration.solve(problem, method=method).objective_ns
    except NotApplicableError:
        return None


def test_the_whole_network_is_another() -> None:
    nic = Nic(Fraction(1000), 40, 2, 8)
    cluster = Cluster("r", "", 3, Rails(3, 2, Fraction(5000), 12), nic)
    scenario = Scenario(Fraction(2), Fraction(1, 2), Fraction(3), Fraction(1, 2))
    other = ITERATION.perturb(Problem(graph_of((10, 10, 8)), cluster), scenario)
    assert other.cluster.nic == Nic(Fraction(3000), 20, 2, 4)
    assert other.cluster.topology == Rails(3, 2, Fraction(15000), 6)
    assert [op.duration_ns for op in other.graph.ops] == [20, 30]


def chain(compute: int) -> Problem:
    """Two layers on two workers; a byte takes a nanosecond in an all-reduce."""
    graph = graph_of((compute, compute, 2 * MEBIBYTE), (compute, compute, 4 * MEBIBYTE))
    return Problem(graph, on_switch(2, 0), modes=("replicated",))


def small() -> Problem:
    return chain(MEBIBYTE)


def large() -> Problem:
    """One whose start-ups may not be twice as long."""
    nic = Nic(Fraction(10**9), MAX_VALUE // 64 * 5)
    return replace(small(), cluster=replace(small().cluster, nic=nic))


def barrier(*sent: tuple[int, int]) -> Callable[[int], int]:
    """What an iteration lasts if (ready, size) are sent, then the forward pass runs."""

    def takes(compute: int) -> int:
        free = 0
        for ready, size in sent:
            free = max(free, ready) + size * MEBIBYTE
        return max(free, 2 * compute) + 2 * compute

    return takes


@pytest.mark.parametrize("compute", [MEBIBYTE, 10 * MEBIBYTE, 1000 * MEBIBYTE])
def test_ddp_is_priced_with_its_barrier_and_its_best_buckets(compute: int) -> None:
    problem = chain(compute)
    found = advise(ITERATION, problem, iteration.solve(problem), NEVER)
    assert found is not None
    apart = barrier((compute, 4), (2 * compute, 2))(compute)
    together = barrier((2 * compute, 6))(compute)
    assert found.ddp_ns == min(apart, together) == apart
    assert found.bucket_mb is None
    assert found.keep_ddp == (compute > MEBIBYTE)


@pytest.mark.slow
@settings(max_examples=20)
@given(problems(max_parameters=3))
def test_the_best_buckets_are_no_slower_than_the_default(problem: Problem) -> None:
    result, known = iteration.solve(problem), result_of(problem, "ddp")
    found = advise(ITERATION, problem, result, NEVER)
    if result.plan is None or known is None:
        assert found is None
        return
    assert found is not None
    assert found.ddp_ns == known  # no parameter is as large as a bucket
