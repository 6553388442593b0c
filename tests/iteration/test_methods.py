"""Every method's plan is a plan, costs what it says, and nothing undercuts what is proven."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.iteration import (
    METHODS,
    Plan,
    Problem,
    bound,
    check,
    evaluate,
    network_bound,
    solve,
)
from planner.families.iteration.bounds import raised
from planner.families.iteration.evaluation import Evaluation, check_room, check_times, lasting
from planner.families.iteration.plan import BML, Mode
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph, Parameter
from planner.model.topologies import Rails
from planner.solving.result import Result
from tests.iteration.iteration_strategies import problems, whole_rates
from tests.iteration.pricing import lasts

MODES: tuple[Mode, ...] = ("replicated", "sharded")


def answers(problem: Problem) -> dict[str, Result[Plan, Evaluation]]:
    """Answers of all methods, but for those that need one algorithm."""
    found = {}
    for method in METHODS:
        try:
            found[method] = solve(problem, method=method)
        except NotApplicableError:
            # Around failures there may be nothing left that libraries have.
            libraries = any(name not in BML for name in problem.by_name)
            assert method in {"bml", "bigdl", "ibatch"} or not libraries
    return found


@pytest.mark.slow
@settings(max_examples=40)
@given(problems())
def test_every_method(problem: Problem) -> None:
    found = answers(problem)
    least = found["auto"]
    for method, result in found.items():
        plan = result.plan
        if plan is None:
            assert result.infeasibility is not None
            assert result.infeasibility.binding == ("max_transfer_bytes",)
            continue
        check(problem, plan)
        check_room(problem, plan)
        check_times(problem, plan, evaluate(problem, plan).iteration)
        assert result.objective_ns == lasts(problem, plan), method
        assert result.objective_ns == lasting(problem, plan)(problem.costs), method
        assert result.lower_bound_ns is not None
        assert network_bound(problem, plan) <= result.objective_ns
        assert least.objective_ns is not None
        assert least.objective_ns <= result.objective_ns, method
        assert result.lower_bound_ns <= result.objective_ns
        assert least.lower_bound_ns is not None
        if problem.op_order is not None:
            assert least.lower_bound_ns <= result.objective_ns
    if least.plan is not None:
        for option in problem.options:
            for mode in MODES:
                room = problem.room(mode)
                large = room is None or room >= problem.element_bytes
                if large and option.refusal(mode) is None:
                    assert least.lower_bound_ns is not None
                    assert least.objective_ns is not None
                    known = bound(problem, option, mode, least.plan)
                    most = raised(problem, option, mode, known, least.objective_ns, least.plan)
                    assert least.lower_bound_ns <= most


def shape(plan: Plan | None) -> object:
    """What a plan sends, without the names of anything."""
    assert plan is not None
    return [(transfer.kind, transfer.parts, transfer.not_before_ns) for transfer in plan.transfers]


@settings(max_examples=30)
@given(problems())
def test_the_same_problem_has_the_same_plan(problem: Problem) -> None:
    first, again = solve(problem), solve(replace(problem))
    assert first.plan == again.plan
    assert first.lower_bound_ns == again.lower_bound_ns


@settings(max_examples=30)
@given(problems())
def test_names_mean_nothing(problem: Problem) -> None:
    graph = problem.graph
    renamed = Graph(
        tuple(
            replace(op, name=f"x {op.name}", after=tuple(f"x {one}" for one in op.after))
            for op in graph.ops
        ),
        tuple(
            Parameter(
                f"y{number}",
                one.size_bytes,
                tuple(f"x {name}" for name in one.updated_by),
                tuple(f"x {name}" for name in one.read_by),
            )
            for number, one in enumerate(reversed(graph.parameters))
        )[::-1],
    )
    order = problem.op_order
    other = replace(
        problem,
        graph=renamed,
        op_order=None if order is None else tuple(f"x {name}" for name in order),
    )
    one, two = solve(problem), solve(other)
    assert one.objective_ns == two.objective_ns
    if one.plan is not None:
        assert shape(one.plan) == shape(two.plan)


@settings(max_examples=40)
@given(problems(cluster=whole_rates(), capped=False), st.integers(2, 1000))
def test_slower_by_a_factor_costs_that_much_more(problem: Problem, factor: int) -> None:
    """All times by one factor, and all speeds by its inverse: any plan is as much longer."""
    cluster, topology = problem.cluster, problem.cluster.topology
    if isinstance(topology, Rails):
        topology = replace(
            topology,
            link_bytes_per_s=topology.link_bytes_per_s / factor,
            link_startup_ns=topology.link_startup_ns * factor,
        )
    nic = replace(
        cluster.nic,
        bytes_per_s=cluster.nic.bytes_per_s / factor,
        startup_ns=cluster.nic.startup_ns * factor,
        message_ns=cluster.nic.message_ns * factor,
    )
    slow = replace(
        problem,
        graph=problem.graph.scaled(Fraction(factor)),
        cluster=replace(cluster, topology=topology, nic=nic),
    )
    for method in ("ddp", "layer_by_layer", "ps", "auto"):
        plan = solve(problem, method=method).plan
        assert plan is not None
        assert evaluate(slow, plan).iteration_ns == factor * evaluate(problem, plan).iteration_ns
    for mode in MODES:
        for one, other in zip(problem.options, slow.options, strict=True):
            rounding = len(one.options) > 1  # several costs: the search divides its intervals
            assert bound(slow, other, mode) <= factor * (bound(problem, one, mode) + rounding)
    assert solve(slow, method="ps").objective_ns == factor * (
        solve(problem, method="ps").objective_ns or 0
    )
