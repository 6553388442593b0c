"""Graphs with many branches and tiny parameters, as the benchmark makes them."""

import runpy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from planner.families.caramel import OpOrder, Problem, solve
from planner.families.caramel.pricing import loads_of
from planner.families.caramel.windows import windows

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "caramel_branches.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def problem_of(script: dict[str, Any], seed: int, draw: int) -> Problem:
    graph = script["branching"](seed)
    cost = script["network"](Random(f"{seed}/{draw}"), graph)
    return Problem(graph, cost, element_bytes=script["ELEMENT"])


def test_the_mirrored_order_can_be_the_better_one(script: dict[str, Any]) -> None:
    problem = problem_of(script, 1021, 1)
    ops = problem.graph.ops
    names = [ops[index].name for index in (*problem.order.backward, *problem.order.forward)]
    given = solve(replace(problem, op_order=names))
    result = solve(problem)
    assert (result.objective_ns or 0) < (given.objective_ns or 0)
    assert result.plan is not None
    assert result.plan.backward_orders == (problem.mirrored.backward,)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "draw"), [(1003, 0), (1008, 2)])
def test_annealing_hardly_shortens_a_plan(script: dict[str, Any], seed: int, draw: int) -> None:
    problem = problem_of(script, seed, draw)
    result = solve(problem)
    assert result.plan is not None
    order = OpOrder(result.plan.backward_orders[0], result.plan.forward_order)
    annealer = script["Annealer"](windows(problem.graph, *order), problem.cost, 0)
    planned = [dict(load) for load in loads_of(result.plan)]
    assert annealer.value(planned) == result.objective_ns
    found = annealer.best(planned, 0.5)
    assert (result.lower_bound_ns or 0) <= found
    assert (result.objective_ns or 0) <= found * 1.003
