"""Bounds hold for the op orders of the plan they are asked about, and for every plan there is."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.iteration import Plan, Problem, bound, check, evaluate, network_bound
from planner.families.iteration.baselines import both_ways, enforced
from planner.model.graphs import Graph, Op, Parameter
from tests.iteration import brute_force
from tests.iteration.iteration_strategies import problems, whole_rates
from tests.iteration.making import chain, on_switch, solved

three = problems(cluster=whole_rates(), max_parameters=3, capped=False, one_order=True)


def price(problem: Problem, plan: Plan) -> int:
    return evaluate(problem, plan).iteration_ns


@pytest.mark.slow
@settings(max_examples=25)
@given(three)
def test_auto_is_no_worse_than_every_plan_of_its_classes(problem: Problem) -> None:
    _, objective, least = solved(problem)
    for option in problem.single:
        best = min(
            price(problem, plan)
            for made in (brute_force.replicated, brute_force.pushes_then_pulls)
            for plan in made(problem, option.algorithm)
        )
        assert max(least, objective) <= best


@settings(max_examples=40)
@given(three)
def test_both_ways_is_the_best_of_pushes_before_pulls(problem: Problem) -> None:
    option = problem.single[0]
    plan = enforced(problem, option.algorithm, both_ways(problem, option))
    check(problem, plan)
    plans = brute_force.pushes_then_pulls(problem, option.algorithm)
    assert price(problem, plan) == min(price(problem, one) for one in plans)


def test_another_forward_order_has_another_bound() -> None:
    """The large parameter may be needed last; its time on the network is hidden then."""
    graph = Graph(
        (
            Op("f1", 100, "forward"),
            Op("f2", 100, "forward"),
            Op("b", 10, "backward", ("f1", "f2")),
        ),
        (Parameter("w1", 100, ("b",), ("f1",)), Parameter("w2", 2, ("b",), ("f2",))),
    )
    problem = Problem(graph, on_switch(2, 0))
    ring = problem.costs["ring", 1]
    for forward in permutations(problem.base.order.forward):
        plans = [
            replace(plan, forward_order=forward) for plan in brute_force.replicated(problem, "ring")
        ]
        best = min(price(problem, plan) for plan in plans)
        for plan in plans:
            check(problem, plan)
            assert bound(problem, ring, "replicated", plan) <= best
            assert network_bound(problem, plan) <= best


@settings(max_examples=40)
@given(st.integers(0, 20), st.integers(1, 60), st.integers(1, 120), st.integers(1, 40))
def test_bounds_hold_where_transfers_are_capped(
    startup: int, first: int, second: int, cap: int
) -> None:
    """Against a single parameter's best cut, where all is known: as few pieces as there can be."""
    problem = Problem(
        chain((7, 11, 2 * first)),
        on_switch(2, startup),
        pull_bytes=(2 * second,),
        max_transfer_bytes=2 * cap,
    )
    ring = problem.costs["ring", 1]
    pieces, pulls = -(-first // cap), -(-second // cap)
    alone = 18 + 2 * (pieces * startup + first)
    assert bound(problem, ring, "replicated") <= alone
    assert bound(problem, ring, "sharded") <= 18 + (pieces + pulls) * startup + first + second
    halves = replace(problem, max_transfer_bytes=first)
    assert bound(halves, ring, "replicated") == 18 + 2 * (2 * startup + first)
