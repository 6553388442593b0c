"""Whole iterations, in which transfers and computation may disturb each other."""

from dataclasses import replace
from fractions import Fraction
from unittest.mock import patch

import pytest
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
from planner.families.iteration.alternatives import Planner
from planner.families.iteration.baselines import BASELINES, BY_ANY_ALGORITHM, plans_by
from planner.families.iteration.bounds import tightened_bound
from planner.families.iteration.evaluation import check_times
from planner.families.iteration.plan import BML, MODES, Mode
from planner.model.clusters import Cluster, Nic
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.errors import InvalidPlanError, NotApplicableError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.topologies import BCube, Rails
from planner.solving.deadline import NEVER
from planner.testing.strategies import interferences
from tests.iteration import brute_force
from tests.iteration.iteration_strategies import clusters, problems, whole_rates
from tests.iteration.making import solved
from tests.iteration.pricing import lasts


def beside(problem: Problem, interference: Interference) -> Problem:
    return replace(problem, cluster=replace(problem.cluster, interference=interference))


def slower(problem: Problem, factor: int) -> Problem:
    """All times by one factor, and all speeds by its inverse: any plan is as much longer."""
    cluster, taken = problem.cluster, problem.interference
    topology = cluster.topology
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
    interference = replace(
        taken,
        startup_ns=taken.startup_ns * factor,
        ns_per_byte=taken.ns_per_byte * factor,
        delay_ns=taken.delay_ns * factor,
    )
    return replace(
        problem,
        graph=problem.graph.scaled(Fraction(factor)),
        cluster=replace(cluster, topology=topology, nic=nic, interference=interference),
    )


def disturbed(problem: st.SearchStrategy[Problem]) -> st.SearchStrategy[Problem]:
    """Small times show ties, large ones what rounding hides."""
    return st.builds(
        slower, st.builds(beside, problem, interferences()), st.sampled_from([1, 1000])
    )


def rounding(problem: Problem, transfers: int) -> int:
    """Whole nanoseconds: where a transfer ends, and where computation begins to wait."""
    return 0 if problem.interference.is_none else 3 * transfers + 3


two = problems(cluster=clusters(single=False), max_parameters=2, capped=False, one_order=True)


@pytest.mark.slow
@settings(max_examples=80)
@given(disturbed(problems()) | problems())
def test_every_method(problem: Problem) -> None:
    """What `planner.testing` does not know: prices event by event, and all bounds."""
    best = solve(problem)
    for method in METHODS:
        try:
            result = solve(problem, method=method)
        except NotApplicableError:
            # Around failures there may be nothing left that libraries have.
            libraries = any(name not in BML for name in problem.by_name)
            assert method in {"bml", "bigdl", "ibatch"} or not libraries
            continue
        plan, objective = result.plan, result.objective_ns
        if plan is None or objective is None:
            assert result.infeasibility is not None
            assert result.infeasibility.binding == ("max_transfer_bytes",)
            continue
        off = abs(objective - lasts(problem, plan))
        assert off <= rounding(problem, len(plan.transfers)), method
        assert evaluate(beside(problem, NO_CONTENTION), plan).iteration_ns <= objective
        assert network_bound(problem, plan) <= objective
        assert best.objective_ns is not None
        assert best.objective_ns <= objective, method
        if problem.op_order is not None:
            assert best.lower_bound_ns is not None
            assert best.lower_bound_ns <= objective
    if best.plan is None or best.objective_ns is None or best.lower_bound_ns is None:
        return
    for option in problem.options:
        for mode in MODES:
            room = problem.transfer_limit(mode)
            if (room is None or room >= problem.element_bytes) and option.refusal(mode) is None:
                known = bound(problem, option, mode, best.plan)
                most = tightened_bound(problem, option, mode, known, best.objective_ns, best.plan)
                assert best.lower_bound_ns <= most


def test_of_equal_algorithms_the_only_one_planned_knows_the_rules_of_the_others() -> None:
    """BigDL's plan was one of shuffles only; they cost what rings do here, and were left out."""
    graph = Graph(
        (
            Op("f0", 0, "forward"),
            Op("f1", 0, "forward", ("f0",)),
            Op("b1", 0, "backward", ("f1",)),
            Op("b0", 1000, "backward", ("b1", "f0")),
        ),
        (Parameter("w0", 1, ("b1", "b0"), ("f0",)), Parameter("w1", 2, ("b1",), ("f1",))),
    )
    nic = Nic(Fraction(1_000_000), startup_ns=0)
    interference = Interference(0, Fraction(1000), Fraction(1), delay_ns=3000)
    cluster = Cluster("two", "a test", 2, BCube(2, 1), nic, interference=interference)
    problem = Problem(graph, cluster, pull_bytes=(1, 1), element_bytes=1)
    assert solved(problem).iteration_ns <= solved(problem, "bigdl").iteration_ns


@settings(max_examples=50)
@given(disturbed(two) | two)
def test_no_plan_of_whole_parameters_is_below_a_bound(problem: Problem) -> None:
    for option in problem.by_name.values():
        for mode, made in zip(MODES, (brute_force.replicated, brute_force.sharded), strict=True):
            least = bound(problem, option, mode)
            for plan in made(problem, option.algorithm):
                check(problem, plan)
                evaluation = evaluate(problem, plan)
                check_times(problem, plan, evaluation.iteration)
                time_ns = evaluation.iteration_ns
                off = abs(time_ns - lasts(problem, plan))
                assert off <= rounding(problem, len(plan.transfers))
                assert max(least, network_bound(problem, plan)) <= time_ns
        if not problem.interference.is_none:
            break  # one algorithm is enough where both disturb each other: plans are many


@settings(max_examples=25)
@given(disturbed(problems(capped=False)), st.sampled_from(MODES))
def test_every_rule_is_a_plan_to_choose_from(problem: Problem, mode: Mode) -> None:
    """Whatever the search finds."""
    bad = "layer_by_layer" if mode == "replicated" else "ps"
    way = problem.options[0]
    (plan,) = {rule(problem, way, NEVER) for name, rule in BASELINES.items() if name == bad}
    if way.refusal(mode):
        return
    with patch.object(Planner, "sharded", lambda *_, **__: ([plan], False)):
        plans, timed_out = Planner(problem, way, NEVER).contended(mode, [plan])
    assert not timed_out
    known = plans_by(BY_ANY_ALGORITHM, problem, way, NEVER)[0]
    assert {made for made in known if made.mode == mode} <= {*plans}


@settings(max_examples=40)
@given(disturbed(problems()), st.integers(0, 50), st.integers(0, 4), st.sampled_from(["ddp", "ps"]))
def test_what_takes_more_is_not_shorter(
    problem: Problem, startup: int, rate: int, method: str
) -> None:
    one = problem.interference
    two = Interference(one.startup_ns + startup, one.ns_per_byte + rate, one.slowdown, one.delay_ns)
    more = beside(problem, two)
    try:
        plan = solve(problem, method=method).plan
    except NotApplicableError:
        return
    if plan is None:
        return
    short, long = (evaluate(each, plan).iteration_ns for each in (problem, more))
    assert short <= long + rounding(more, len(plan.transfers))
    for option in problem.options:
        for mode in MODES:
            if problem.transfer_limit(mode) is None:
                assert bound(problem, option, mode) <= bound(more, option, mode)


whole = problems(cluster=whole_rates(), capped=False)


@settings(max_examples=50)
@given(disturbed(whole) | whole, st.integers(2, 1000))
def test_slower_by_a_factor_costs_that_much_more(problem: Problem, factor: int) -> None:
    slow = slower(problem, factor)
    for method in ("ddp", "layer_by_layer", "ps", "auto"):
        plan = solved(problem, method).plan
        off = evaluate(slow, plan).iteration_ns - factor * evaluate(problem, plan).iteration_ns
        assert abs(off) <= 2 * factor * rounding(problem, len(plan.transfers))
    if not problem.interference.is_none:
        return
    for mode in MODES:
        for one, other in zip(problem.options, slow.options, strict=True):
            several = len(one.options) > 1  # several costs: the search divides its intervals
            assert bound(slow, other, mode) <= factor * (bound(problem, one, mode) + several)
    assert solved(slow, "ps").iteration_ns == factor * solved(problem, "ps").iteration_ns


@settings(max_examples=25)
@given(disturbed(problems(capped=False)))
def test_a_schedule_that_forgets_the_interference_is_none(problem: Problem) -> None:
    try:
        plan = solved(problem, "ps").plan
    except NotApplicableError:  # servers have failed
        return
    right = evaluate(problem, plan)
    forgot = evaluate(beside(problem, NO_CONTENTION), plan)
    if forgot.iteration_ns < right.iteration_ns - rounding(problem, len(plan.transfers)) * 4:
        with pytest.raises(InvalidPlanError):
            check_times(problem, plan, forgot.iteration)
