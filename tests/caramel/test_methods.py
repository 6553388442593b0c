"""Every method: what must hold between them on every graph and cost; rules of other systems."""

import runpy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost, Result, Status, testing
from planner.families.caramel import METHODS, Group, OpOrder, Part, Plan, Problem, evaluate, solve
from planner.families.caramel.baselines import horovod
from planner.families.caramel.bounds import lower_bound
from planner.families.caramel.checker import check_times
from planner.families.caramel.evaluation import Evaluation
from planner.families.caramel.family import CARAMEL
from planner.families.caramel.methods import BASELINES
from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.pricing import joined, loads_of
from planner.families.caramel.windows import drawn_orders, windows
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.costs import DepthCost, TransferCost
from planner.model.errors import InvalidPlanError, NotApplicableError
from planner.model.graphs import Graph
from planner.solving.deadline import NEVER
from planner.testing.strategies import affine_costs, depth_costs, interferences
from tests.caramel.exact_oracles import best_by_enumeration, best_split, ordered_partitions, price
from tests.caramel.graph_strategies import graphs
from tests.caramel.making import apart, solved
from tests.iteration.making import chain, profile_of
from tests.present import present
from tests.solved import Solved

alone = testing.problems("caramel", 4).map(lambda one: replace(one, interference=NO_CONTENTION))
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
# What other systems do, on cases worked out by hand and on the shipped ResNet-50.


def test_ddp_sends_the_buckets_resnet50_has_under_pytorch() -> None:
    """Sizes in elements as measured with torchvision's ResNet-50 under DDP's default limits."""
    graph = profile_of("resnet50").dataflow()
    # Eager execution has one order: autograd runs the forward pass in reverse.
    forward = [graph.ops[index].name for index in graph.pass_order("forward")]
    names = {op.name for op in graph.ops}
    backward = [name.replace("/forward", "/backward") for name in reversed(forward)]
    order = [*(name for name in backward if name in names), *forward]
    plan = solved(Problem(graph, AffineCost(50_000, Fraction(4, 5)), op_order=order), "ddp").plan
    elements = [group.size_bytes // 4 for group in plan.groups]
    assert elements == [2049000, 7875584, 6563840, 6637568, 2431040]


def sent(cost: AffineCost, method: str, *layers: tuple[int, int, int]) -> list[dict[str, int]]:
    """Return the bytes of each parameter in each transfer of a chain's gradients."""
    groups = solved(Problem(chain(*layers), cost), method).plan.groups
    return [{f"w{part.parameter}": part.stop - part.start for part in one.parts} for one in groups]


def test_what_is_sent_by_hand() -> None:
    small = (1, 1, 5), (1, 1, 6), (1, 1, 7)
    unit = AffineCost(0, Fraction(1))
    assert sent(unit, "layer_by_layer", *small) == [{"w2": 7}, {"w1": 6}, {"w0": 5}]
    # 1 + 7 + 6 + 5 = 19, then the forward pass, which waits for everything.
    assert solved(Problem(chain(*small), unit), "layer_by_layer").iteration_ns == 22
    # What waits less than a start-up is merged.
    cost = AffineCost(10, Fraction(1))
    merged = sent(cost, "mg_wfbp", (0, 15, 3), (0, 9, 3), (0, 9, 3))
    assert merged == [{"w2": 3, "w1": 3}, {"w0": 3}]
    # The large gradient goes in 4 MB partitions; the small one overtakes behind the first.
    slow = AffineCost(0, Fraction(1, 1000))
    partitions = sent(slow, "bytescheduler", (1, 1000, 50), (1, 1000, 10**7))
    assert partitions == [{"w1": 4 * 10**6}, {"w0": 50}, {"w1": 4 * 10**6}, {"w1": 2 * 10**6}]


def test_horovod_looks_once_a_cycle() -> None:
    problem = Problem(chain((1, 4, 5), (1, 4, 6), (1, 4, 7)), AffineCost(1, Fraction(1)))
    plan = present(horovod(problem, NEVER, cycle_ns=10, fusion_bytes=64).plan)
    times = evaluate(problem, plan).times
    # Ready at 4, 8 and 12; cycles at 10 (two gradients, until 24) and 24.
    assert [(time.start_ns, time.end_ns) for time in times] == [(10, 24), (24, 30)]
    small = present(horovod(problem, NEVER, cycle_ns=10, fusion_bytes=7).plan)
    assert [group.size_bytes for group in small.groups] == [7, 6, 5]


def test_parameter_servers_move_more_than_an_all_reduce() -> None:
    problem = Problem(chain((0, 0, 700)), AffineCost(10, Fraction(1)))
    costs = {
        servers: solved(replace(problem, workers=8, servers=servers), "ps").iteration_ns
        for servers in (8, 4)
    }
    assert costs == {8: 10 + 700 * 8 // 7, 4: 10 + 700 * 16 // 7}
    assert solved(problem, "ps").iteration_ns == costs[8]
    with pytest.raises(NotApplicableError, match="at least 2"):
        solve(replace(problem, workers=1), method="ps")


def test_drawn_orders_differ_and_repeat() -> None:
    graph = apart(*((1, 1, 1 + size) for size in range(6)))
    orders = drawn_orders(graph, 8, 0, NEVER)
    assert len(set(orders)) > 1
    assert drawn_orders(graph, 8, 0, NEVER) == orders
    assert drawn_orders(graph, 8, 1, NEVER) != orders
    assert drawn_orders(graph, 4, 0, NEVER) == orders[:4]
    problem = Problem(graph, AffineCost(0, Fraction(1)))
    one, many = (replace(problem, workers=workers) for workers in (1, 8))
    least = solved(one, "layer_by_layer").iteration_ns
    assert least < solved(many, "layer_by_layer").iteration_ns


# ---
# Transfers and computation that disturb each other: prices, bounds and plans.


@pytest.mark.slow
@settings(max_examples=200)
@given(testing.problems("caramel", 4), interferences(), st.sampled_from(sorted(METHODS)))
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


@given(testing.graphs(parameters=3), testing.costs() | depth_costs(), interferences())
def test_no_order_of_whole_parameters_is_below_the_bound(
    graph: Graph, cost: TransferCost, contention: Interference
) -> None:
    problem = Problem(graph, cost, interference=contention)
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


def test_a_bound_is_met_where_all_is_hidden_and_no_schedule_forgets_the_interference() -> None:
    """300 bytes at least take 15 ns and one start-up from 300 ns of computation."""
    contention = Interference(1, Fraction(1, 20))
    ten = chain(*[(10, 20, 30)] * 10)
    problem = Problem(ten, AffineCost(2, Fraction(1, 10)), interference=contention)
    plan, iteration_ns, bound_ns = solved(problem)
    assert bound_ns == 316
    assert iteration_ns <= 330  # what it takes at least, and ten transfers
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
