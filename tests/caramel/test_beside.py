"""Transfers and computation that disturb each other: prices, bounds and plans."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost
from planner.families.caramel import METHODS, Group, Part, Plan, Problem, evaluate, solve
from planner.families.caramel.checker import check_times
from planner.families.caramel.family import CARAMEL
from planner.families.caramel.methods import BASELINES
from planner.families.caramel.pricing import joined
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.errors import InvalidPlanError, NotApplicableError
from planner.solving.deadline import NEVER
from planner.testing import costs, graphs, problems
from planner.testing.strategies import depth_costs, interferences
from tests.caramel.exact_oracles import ordered_partitions
from tests.caramel.making import solved
from tests.formats.refused import refused
from tests.iteration.making import chain

TEN = chain(*[(10, 20, 30)] * 10)


@pytest.mark.slow
@settings(max_examples=200)
@given(problems("caramel", 4), interferences(), st.sampled_from(sorted(METHODS)))
def test_search_is_never_behind_another_method_and_rules_know_nothing_of_it(
    problem: Problem, contention: Interference, method: str
) -> None:
    problem, alone = (replace(problem, interference=one) for one in (contention, NO_CONTENTION))
    try:
        other = solved(problem, method)
    except NotApplicableError:
        return
    least = max(solved(problem).iteration_ns, evaluate(alone, other.plan).iteration_ns)
    assert least <= other.iteration_ns
    if method in BASELINES:
        assert other.plan == solve(alone, method=method).plan


@given(
    st.builds(Problem, graphs(parameters=3), costs() | depth_costs(), interference=interferences())
)
def test_no_order_of_whole_parameters_is_below_the_bound(problem: Problem) -> None:
    order, parameters = problem.order, problem.graph.parameters
    values, bounds = [], set()
    for groups in ordered_partitions(tuple(range(len(parameters)))):
        loads = (tuple(Part(j, 0, parameters[j].size_bytes) for j in group) for group in groups)
        plan = Plan(tuple(map(Group, loads)), (order.backward,), order.forward)
        values.append(evaluate(problem, plan).iteration_ns)
        bounds.add(CARAMEL.bound(problem, plan, NEVER)[0])
    (bound,) = bounds
    assert bound is not None
    assert min(values) >= bound
    best = solved(problem, "search")
    if best.plan.backward_orders == (order.backward,):
        assert best.iteration_ns >= bound


def test_a_bound_is_met_where_everything_is_hidden() -> None:
    """300 bytes at least take 15 ns and one start-up from 300 ns of computation."""
    contention = Interference(1, Fraction(1, 20))
    result = solved(Problem(TEN, AffineCost(2, Fraction(1, 10)), interference=contention))
    assert result.bound_ns == 316
    assert result.iteration_ns <= 330  # what it takes at least, and ten transfers


def test_numbers_that_cannot_be_are_refused() -> None:
    wrong = {"startup_ns": -1, "ns_per_byte": -1, "slowdown": Fraction(1, 2), "delay_ns": -1}
    for field, value in (*wrong.items(), ("slowdown", float("nan"))):
        given: dict[str, Any] = {field: value}
        with refused(field, ""):
            Interference(**given)


def test_a_schedule_that_forgets_the_interference_is_none() -> None:
    problem = Problem(TEN, AffineCost(2, Fraction(1)), interference=Interference(5))
    plan = solved(problem).plan
    free = evaluate(replace(problem, interference=NO_CONTENTION), plan).iteration
    with pytest.raises(InvalidPlanError, match="does not take"):
        check_times(problem, plan, free)


def test_what_is_merged_is_one_stretch_of_each_parameter() -> None:
    first = (Part(0, 0, 8), Part(1, 0, 4))
    assert joined(first, (Part(0, 8, 12),)) == (Part(0, 0, 12), Part(1, 0, 4))
    assert joined((Part(0, 8, 12),), (Part(0, 0, 8),)) == (Part(0, 0, 12),)
    assert joined(first, (Part(2, 0, 4), Part(0, 9, 12))) is None
    two = joined((Part(0, 4, 8), Part(0, 0, 4)), (Part(1, 0, 4),))
    assert two == (Part(0, 0, 8), Part(1, 0, 4))
