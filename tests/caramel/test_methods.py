"""Every method on every kind of graph and cost: what must hold between them, and of each."""

import runpy
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost, Result, Status
from planner.families.caramel import METHODS, OpOrder, Plan, Problem, solve
from planner.families.caramel.bounds import lower_bound
from planner.families.caramel.evaluation import Evaluation
from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.pricing import loads_of
from planner.families.caramel.windows import windows
from planner.model.contention import NO_CONTENTION
from planner.model.costs import DepthCost
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph
from planner.testing import problems
from planner.testing.strategies import affine_costs
from tests.caramel.exact_oracles import best_by_enumeration, best_split, price
from tests.caramel.graph_strategies import graphs
from tests.caramel.making import solved
from tests.present import present
from tests.solved import Solved

alone = problems("caramel", 4).map(lambda one: replace(one, interference=NO_CONTENTION))
"""Problems of up to four parameters without contention."""


def answers(problem: Problem) -> dict[str, Result[Plan, Evaluation]]:
    found = {}
    for method in METHODS:
        try:
            found[method] = solve(problem, method=method)
        except NotApplicableError:
            assert (method, problem.workers) == ("ps", 1)
    return found


def in_its_order(problem: Problem, order: OpOrder | None = None) -> Problem:
    """Return the problem with its own op order, or another one, given."""
    order = order or problem.order
    return replace(problem, op_order=problem.graph.names_of((*order.backward, *order.forward)))


@pytest.mark.slow
@settings(max_examples=250)
@given(alone, st.data())
def test_nothing_is_better_than_auto_and_shares_of_time_agree(
    problem: Problem, data: st.DataObject
) -> None:
    """On one op order: bound ≤ cut optimum ≤ whole optimum ≤ every plan of whole parameters."""
    fixed = in_its_order(problem)
    for found in (answers(problem), answers(fixed)):
        for result in found.values():
            priced = present(result.evaluation)
            assert priced.iteration_ns == priced.computation_ns + priced.stall_ns
            assert priced.stall_ns >= 0
            assert priced.overlap <= 1 + 1e-12
            if priced.rho:  # without communication no α tells of waits between Horovod's cycles
                utilisation = 1 / (1 + priced.rho - priced.overlap * min(priced.rho, 1))
                assert utilisation == pytest.approx(priced.utilisation)
        costs = {method: Solved.of(result).iteration_ns for method, result in found.items()}
        assert costs["auto"] == min(costs.values())
        assert costs["exact_split"] <= costs["exact"]
    known, bound = fixed.windows, lower_bound(fixed.windows, fixed.cost)
    assert preemptive_bound(known, fixed.cost) <= bound <= costs["auto"]
    assert costs["exact"] == best_by_enumeration(known, fixed.cost)
    assert found["exact"].status is Status.OPTIMAL
    for method in ("ddp", "horovod", "mg_wfbp", "layer_by_layer", "ps"):
        assert costs["exact"] <= costs.get(method, costs["exact"])
    if not isinstance(fixed.cost, DepthCost):
        assert costs["exact"] <= costs["caramel"]
    order = data.draw(st.permutations(range(len(known.sizes))))
    assert costs["auto"] <= price(known, fixed.cost, [((j, known.sizes[j]),) for j in order])


@pytest.mark.slow
@settings(max_examples=20)
@given(alone)
def test_of_two_orders_the_better_one(problem: Problem) -> None:
    plan, iteration_ns, bound_ns = solved(problem)
    for order in (problem.order, problem.mirrored):
        assert iteration_ns <= solved(in_its_order(problem, order), "exact_split").iteration_ns
    own = OpOrder(plan.backward_orders[0], plan.forward_order)
    assert bound_ns <= solved(in_its_order(problem, own), "exact_split").iteration_ns


@settings(max_examples=100)
@given(graphs(max_parameters=3, sizes=st.integers(1, 4)), affine_costs())
def test_cutting_is_solved_to_the_optimum(graph: Graph, cost: AffineCost) -> None:
    problem = in_its_order(Problem(graph, cost))
    best = best_split(problem.windows, cost)
    for method in ("exact_split", "auto"):
        result = solve(problem, method=method)
        assert (result.objective_ns, result.status) == (best, Status.OPTIMAL)


# ---
# Branching graphs of a benchmark, and its annealing.


def test_the_mirrored_order_can_be_the_better_one_and_annealing_hardly_shortens_its_plan() -> None:
    script = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "caramel_branches.py"))
    graph = script["branching"](1021)
    cost = script["network"](Random("1021/1"), graph)
    problem = Problem(graph, cost, element_bytes=script["ELEMENT"])
    plan, iteration_ns, bound_ns = solved(problem)
    assert iteration_ns < solved(in_its_order(problem)).iteration_ns
    assert plan.backward_orders == (problem.mirrored.backward,)
    order = OpOrder(plan.backward_orders[0], plan.forward_order)
    annealer = script["Annealer"](windows(graph, *order), cost, 0)
    planned = [dict(load) for load in loads_of(plan)]
    assert annealer.value(planned) == iteration_ns
    found = annealer.best(planned, 0.2)
    assert bound_ns <= found
    assert iteration_ns <= found * 1.003
