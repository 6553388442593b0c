"""Regret and advice of whole iterations, against prices found event by event."""

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner.iteration.scenarios import advised, regretted, under

from planner import iteration
from planner.clusters import Cluster, Nic
from planner.deadline import NEVER
from planner.errors import NotApplicableError
from planner.graphs import Graph, Op, Parameter
from planner.iteration import Problem
from planner.scenarios import SCENARIOS, Scenario
from planner.topologies import Rails, Switch
from tests.iteration.iteration_strategies import problems
from tests.iteration.pricing import lasts

MEBIBYTE = 2**20


def result_of(problem: Problem, method: str) -> int | None:
    try:
        return iteration.solve(problem, method=method).objective_ns
    except NotApplicableError:
        return None


def test_the_whole_network_is_another() -> None:
    ops = (Op("f", 10, "forward"), Op("b", 10, "backward", ("f",)))
    graph = Graph(ops, (Parameter("w", 8, ("b",), ("f",)),))
    nic = Nic(Fraction(1000), 40, 2, 8)
    cluster = Cluster("r", "", 3, Rails(3, 2, Fraction(5000), 12), nic)
    scenario = Scenario(Fraction(2), Fraction(1, 2), Fraction(3), Fraction(1, 2))
    other = under(Problem(graph, cluster), scenario)
    assert other.cluster.nic == Nic(Fraction(3000), 20, 2, 4)
    assert other.cluster.topology == Rails(3, 2, Fraction(15000), 6)
    assert [op.duration_ns for op in other.graph.ops] == [20, 30]


@pytest.mark.slow
@settings(max_examples=20)
@given(problems(max_parameters=3), st.sampled_from(("auto", "ddp", "ps")))
def test_every_row_is_priced_and_bounded(problem: Problem, method: str) -> None:
    try:
        plan = iteration.solve(problem, method=method).plan
    except NotApplicableError:
        return
    if plan is None:
        return
    rows = regretted(problem, plan, NEVER)
    assert [row.scenario for row in rows] == list(SCENARIOS)
    for row in rows:
        other = under(problem, row.scenario)
        assert row.plan_ns == lasts(other, plan)
        assert row.ddp_ns == result_of(other, "ddp")
        assert row.layers_ns == result_of(other, "layer_by_layer")
        anew = iteration.solve(other)
        assert anew.objective_ns is not None
        assert anew.lower_bound_ns is not None
        rules = [time for time in (row.ddp_ns, row.layers_ns) if time is not None]
        assert row.best_ns == min(row.plan_ns, anew.objective_ns, *rules)
        assert row.bound_ns == min(anew.lower_bound_ns, row.best_ns)
        assert row.at_most is None or 1 <= row.at_least <= row.at_most


def chain(compute: int) -> Problem:
    """Two layers on two workers; a byte takes a nanosecond in an all-reduce."""
    ops = (
        Op("f1", compute, "forward"),
        Op("f2", compute, "forward", ("f1",)),
        Op("b2", compute, "backward", ("f2",)),
        Op("b1", compute, "backward", ("b2", "f1")),
    )
    parameters = (
        Parameter("w1", 2 * MEBIBYTE, ("b1",), ("f1",)),
        Parameter("w2", 4 * MEBIBYTE, ("b2",), ("f2",)),
    )
    cluster = Cluster("two", "a test", 2, Switch(2), Nic(Fraction(10**9), 0))
    return Problem(Graph(ops, parameters), cluster, modes=("replicated",))


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
    found = advised(problem, iteration.solve(problem), NEVER)
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
    found = advised(problem, result, NEVER)
    if result.plan is None or known is None:
        assert found is None
        return
    assert found is not None
    assert found.ddp_ns == known  # no parameter is as large as a bucket
