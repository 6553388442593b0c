"""Bounds hold for the op orders of the plan they are asked about."""

from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.iteration import (
    METHODS,
    Problem,
    bound,
    check,
    evaluate,
    network_bound,
    solve,
)
from planner.jsonio import decode_profile
from planner.jsonio.clusters import decode_cluster
from planner.model.clusters import Cluster, Nic
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.topologies import BCube, Switch
from planner.solving.result import Status
from tests.iteration import brute_force

FORWARD = Graph(
    (
        Op("f1", 100, "forward"),
        Op("f2", 100, "forward"),
        Op("b", 10, "backward", ("f1", "f2")),
    ),
    (Parameter("w1", 50, ("b",), ("f1",)), Parameter("w2", 1, ("b",), ("f2",))),
)
CLUSTER = Cluster("c", "a test", 2, Switch(2), Nic(Fraction(5 * 10**8), 0))


def test_another_forward_order_has_another_bound() -> None:
    """The large parameter may be needed last; its time on the network is hidden then."""
    problem = Problem(FORWARD, CLUSTER)
    ring = problem.synchronisation("ring")
    for forward in permutations(problem.base.order.forward):
        plans = [
            replace(plan, forward_order=forward) for plan in brute_force.replicated(problem, "ring")
        ]
        best = min(evaluate(problem, plan).iteration_ns for plan in plans)
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
    graph = Graph(
        (Op("f", 7, "forward"), Op("b", 11, "backward", ("f",))),
        (Parameter("w", first, ("b",), ("f",)),),
    )
    nic = Nic(Fraction(5 * 10**8), startup)
    problem = Problem(
        graph,
        Cluster("c", "a test", 2, Switch(2), nic),
        pull_bytes=(second,),
        max_transfer_bytes=cap,
    )
    ring = problem.synchronisation("ring")
    pieces, pulls = -(-first // cap), -(-second // cap)
    alone = 18 + 2 * (pieces * startup + first)
    assert bound(problem, ring, "replicated") <= alone
    assert bound(problem, ring, "sharded") <= 18 + (pieces + pulls) * startup + first + second
    if first % 2 == 0:
        halves = replace(problem, max_transfer_bytes=first // 2)
        assert bound(halves, ring, "replicated") == 18 + 2 * (2 * startup + first)


def test_every_method_is_bounded_by_what_all_algorithms_and_modes_need() -> None:
    """By one method's own algorithm the best plan is proven; another algorithm's is shorter."""
    graph = Graph(
        (Op("f", 1, "forward"), Op("b", 1, "backward", ("f",))),
        (Parameter("w", 1000, ("b",), ("f",)),),
    )
    nic = Nic(Fraction(10**9), 10, per_machine=2)
    problem = Problem(graph, Cluster("c", "a test", 4, BCube(2, 2), nic))
    best = solve(problem)
    assert best.objective_ns is not None
    for method in METHODS:
        try:
            result = solve(problem, method=method)
        except NotApplicableError:  # there are no modules
            continue
        assert result.lower_bound_ns is not None
        assert result.lower_bound_ns <= best.objective_ns, method
        assert (result.status is Status.OPTIMAL) == (result.objective_ns == best.objective_ns)


def test_no_method_proves_a_shipped_plan_that_another_beats() -> None:
    data = Path(__file__).parents[2] / "data"
    profile = decode_profile((data / "profiles/alexnet_v2.json").read_bytes())
    cluster = decode_cluster((data / "clusters/h100-8.json").read_bytes())
    problem = Problem.from_profile(profile, cluster)
    best = solve(problem)
    batched = solve(problem, method="ibatch")
    assert batched.plan is not None
    assert best.plan is not None
    assert best.objective_ns is not None
    assert batched.objective_ns is not None
    assert batched.lower_bound_ns is not None
    assert best.plan.backward_orders == batched.plan.backward_orders
    assert batched.lower_bound_ns <= best.objective_ns < batched.objective_ns
    assert batched.status is Status.FEASIBLE
