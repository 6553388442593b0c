"""Every method on every kind of graph and cost: what must hold between them, and of each."""

import time
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost, Result, Status
from planner.families.caramel import METHODS, OpOrder, Plan, Problem, solve
from planner.families.caramel.bounds import lower_bound
from planner.families.caramel.evaluation import Evaluation, plan_heads
from planner.families.caramel.methods import EXACT_PARAMETERS
from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.windows import windows
from planner.model.contention import NO_CONTENTION
from planner.model.costs import DepthCost
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph
from planner.testing import problems
from planner.testing.strategies import affine_costs
from tests.caramel.exact_oracles import best_by_enumeration, best_split, price
from tests.caramel.graph_strategies import graphs
from tests.caramel.making import apart, solved
from tests.present import present
from tests.solved import Solved

alone = problems("caramel", 4).map(lambda one: replace(one, interference=NO_CONTENTION))
"""Problems of up to four parameters without contention."""


def answers(problem: Problem) -> dict[str, Result[Plan, Evaluation]]:
    found, left_out = {}, set()
    for method in METHODS:
        try:
            found[method] = solve(problem, method=method)
        except NotApplicableError:
            left_out.add(method)
    expected = {"ps"} if problem.workers == 1 else set()
    if len(problem.graph.parameters) > EXACT_PARAMETERS:
        expected.add("exact")
    assert left_out == expected
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
        for method in ("auto", "caramel", "ddp"):
            priced = present(found[method].evaluation)
            assert priced.overlap <= 1 + 1e-12
            if priced.rho is not None:
                utilisation = 1 / (1 + priced.rho - priced.overlap * min(priced.rho, 1))
                assert utilisation == pytest.approx(priced.utilisation)
        costs = {method: Solved.of(result).iteration_ns for method, result in found.items()}
        assert costs["auto"] == min(costs.values())
        assert costs["exact_split"] <= costs.get("exact", costs["exact_split"])
    known, bound = fixed.windows, lower_bound(fixed.windows, fixed.cost)
    assert preemptive_bound(known, fixed.cost) <= bound <= costs["auto"]
    if "exact" in found:
        if len(known.sizes) <= 5:
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
        assert result.objective_ns == best
        assert result.status is Status.OPTIMAL


@settings(max_examples=80)
@given(alone, st.integers(2, 1000))
def test_scaling_changes_nothing(problem: Problem, factor: int) -> None:
    rate = Fraction(3)
    one = replace(problem, cost=AffineCost(7, rate))
    ops = tuple(replace(op, duration_ns=op.duration_ns * factor) for op in one.graph.ops)
    graph = Graph(ops, one.graph.parameters)
    two = replace(one, graph=graph, cost=AffineCost(7 * factor, rate * factor))
    for method in ("auto", "caramel", "ddp", "mg_wfbp", "bytescheduler", "layer_by_layer"):
        first, second = solve(one, method=method), solve(two, method=method)
        assert second.objective_ns == factor * Solved.of(first).iteration_ns
        assert second.status == first.status


@settings(max_examples=100)
@given(alone)
def test_drawn_orders_wait_for_the_last_worker(problem: Problem) -> None:
    plan = solved(problem, "ddp").plan
    if problem.fixed_order:
        assert plan.backward_orders == (problem.order.backward,)
        return
    assert len(plan.backward_orders) == problem.workers
    heads = plan_heads(problem.graph, plan)
    for order in plan.backward_orders:
        own = windows(problem.graph, *OpOrder(order, plan.forward_order)).heads
        assert all(mine <= last for mine, last in zip(own, heads, strict=True))


def test_time_is_kept_however_many_workers_draw_orders() -> None:
    graph = apart(*((10, 10, 10 + j) for j in range(15)))
    problem = Problem(graph, AffineCost(100, Fraction(1)))
    many = replace(problem, workers=2**16)
    begin = time.process_time()
    result = solved(many, time_limit=0.001)
    assert time.process_time() - begin < 0.5
    assert result.bound_ns == solved(problem).bound_ns
    with pytest.raises(NotApplicableError, match="65536 workers") as error:
        solve(many, method="ddp", time_limit=0.001)
    assert error.value.path == "time_limit_s"
