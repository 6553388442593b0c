"""How near to the best plans are, as the benchmarks find it: by annealing, and by their bound."""

import runpy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest
from caramel_quality import small_graph
from few_transfers import bound_by_count, least_with

from planner import AffineCost
from planner.families.caramel import OpOrder, Problem, solve
from planner.families.caramel.pricing import loads_of
from planner.families.caramel.windows import windows
from tests.caramel.making import solved
from tests.present import present
from tests.solved import Solved

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
    names = problem.graph.names_of((*problem.order.backward, *problem.order.forward))
    result = solved(problem)
    assert result.iteration_ns < solved(replace(problem, op_order=names)).iteration_ns
    assert result.plan.backward_orders == (problem.mirrored.backward,)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "draw"), [(1003, 0), (1008, 2)])
def test_annealing_hardly_shortens_a_plan(script: dict[str, Any], seed: int, draw: int) -> None:
    problem = problem_of(script, seed, draw)
    plan, iteration_ns, bound_ns = solved(problem)
    order = OpOrder(plan.backward_orders[0], plan.forward_order)
    annealer = script["Annealer"](windows(problem.graph, *order), problem.cost, 0)
    planned = [dict(load) for load in loads_of(plan)]
    assert annealer.value(planned) == iteration_ns
    found = annealer.best(planned, 0.5)
    assert bound_ns <= found
    assert iteration_ns <= found * 1.003


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 16])
def test_no_plan_is_below_the_bound_by_count_which_counts_start_ups(seed: int) -> None:
    random = Random(seed)
    graph = small_graph(random)
    cost = AffineCost(random.randint(5, 20), Fraction(random.randint(1, 20), 10))
    problem = Problem(graph, cost, element_bytes=1)
    result = solve(problem, method="exact_split")
    plan, iteration_ns, _ = Solved.of(result)
    known, transfers = problem.windows, len(loads_of(plan))
    used = present(least_with(transfers, known, cost, 20))
    counted = present(bound_by_count(known, cost, iteration_ns, 20))
    assert max(used, counted) <= iteration_ns + 0.01
    fewest = min(known.heads) + cost.startup_ns + min(known.tails)
    assert used >= fewest + float(sum(known.sizes) * cost.ns_per_byte) - 0.01
    # Each transfer's cost is rounded up.
    if result.status == "optimal" and iteration_ns > known.compute_ns + transfers:
        assert used >= iteration_ns - transfers - 0.01
