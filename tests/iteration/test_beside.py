"""Whole iterations in which transfers and computation disturb each other."""

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
from planner.families.iteration.alternatives import Planner, alternatives
from planner.families.iteration.baselines import BY_ANY_ALGORITHM, RULES, plans_by
from planner.families.iteration.evaluation import check_room, check_times
from planner.families.iteration.plan import Mode, Plan, Way
from planner.families.iteration.transfers import settled
from planner.model.clusters import Cluster, Nic
from planner.model.contention import ALONE, Interference
from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.topologies import BCube, Rails, Switch
from planner.solving.deadline import NEVER
from tests.caramel.test_beside import interferences
from tests.iteration import brute_force
from tests.iteration.iteration_strategies import clusters, problems, whole_rates
from tests.iteration.pricing import lasts_beside
from tests.iteration.test_methods import answers

MODES: tuple[Mode, ...] = ("replicated", "sharded")


def beside(problem: Problem, interference: Interference) -> Problem:
    return replace(problem, cluster=replace(problem.cluster, interference=interference))


def slower(problem: Problem, factor: int) -> Problem:
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


def rounding(plan_transfers: int) -> int:
    """Whole nanoseconds: where a transfer ends, and where computation begins to wait."""
    return 3 * plan_transfers + 3


two = problems(cluster=clusters(single=False), max_parameters=2, capped=False, one_order=True)


@pytest.mark.slow
@settings(max_examples=40)
@given(disturbed(problems()))
def test_every_method(problem: Problem) -> None:
    found = answers(problem)
    best = found["auto"]
    for method, result in found.items():
        plan = result.plan
        if plan is None:
            assert result.infeasibility is not None
            continue
        check(problem, plan)
        check_room(problem, plan)
        evaluation = evaluate(problem, plan)
        check_times(problem, plan, evaluation.iteration)
        assert result.objective_ns is not None
        assert result.lower_bound_ns is not None
        assert abs(result.objective_ns - lasts_beside(problem, plan)) <= rounding(
            len(plan.transfers)
        )
        assert result.objective_ns >= evaluate(beside(problem, ALONE), plan).iteration_ns
        assert network_bound(problem, plan) <= result.objective_ns
        assert result.lower_bound_ns <= result.objective_ns
        assert best.objective_ns is not None
        assert best.objective_ns <= result.objective_ns, method


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
    by_rule = solve(problem, method="bigdl").objective_ns
    best = solve(problem).objective_ns
    assert best is not None
    assert by_rule is not None
    assert best <= by_rule


@settings(max_examples=25)
@given(disturbed(two))
def test_no_plan_of_whole_parameters_is_below_a_bound(problem: Problem) -> None:
    option = problem.single[0]
    for mode, made in zip(MODES, (brute_force.replicated, brute_force.sharded), strict=True):
        least = bound(problem, option, mode)
        for plan in made(problem, option.algorithm):
            check(problem, plan)
            evaluation = evaluate(problem, plan)
            check_times(problem, plan, evaluation.iteration)
            lasts = evaluation.iteration_ns
            assert abs(lasts - lasts_beside(problem, plan)) <= rounding(len(plan.transfers))
            assert least <= lasts


@pytest.mark.slow
@settings(max_examples=25)
@given(disturbed(problems(capped=False)))
def test_alternatives_are_ranked_by_what_they_cost_beside_computation(problem: Problem) -> None:
    listed = alternatives(problem, NEVER)
    for one in listed:
        if one.plan is not None:
            assert one.objective_ns == evaluate(problem, one.plan).iteration_ns
    result = solve(problem)
    assert result.objective_ns == min(
        (one.objective_ns for one in listed if one.objective_ns is not None), default=None
    )


def by_any(problem: Problem, way: Way) -> list[Plan]:
    """The plans of all rules by any algorithm."""
    return plans_by(BY_ANY_ALGORITHM, problem, way, NEVER)[0]


@settings(max_examples=25)
@given(disturbed(problems(capped=False)), st.sampled_from(MODES))
def test_every_rule_is_a_plan_to_choose_from(problem: Problem, mode: Mode) -> None:
    """Whatever the search finds."""
    bad = "layer_by_layer" if mode == "replicated" else "ps"
    way = problem.options[0]
    (plan,) = {rule(problem, way, NEVER) for name, rule in RULES.items() if name == bad}
    if way.refusal(mode):
        return
    with patch.object(Planner, "sharded", lambda *_, **__: ([plan], False)):
        plans, timed_out = Planner(problem, way, NEVER).beside(mode, [plan])
    assert not timed_out
    assert {made for made in by_any(problem, way) if made.mode == mode} <= {*plans}


@settings(max_examples=25)
@given(disturbed(problems(capped=False, max_parameters=3)), st.sampled_from(MODES))
def test_no_rule_is_better_in_either_mode(problem: Problem, mode: Mode) -> None:
    problem = replace(problem, modes=(mode,))
    best = solve(problem).objective_ns
    for way in (way for way in problem.options if not way.refusal(mode)):
        for plan in (made for made in by_any(problem, way) if made.mode == mode):
            assert best is None or best <= evaluate(problem, settled(plan, way)).iteration_ns


@settings(max_examples=25)
@given(problems(), st.sampled_from(sorted(METHODS)))
def test_what_takes_nothing_changes_nothing(problem: Problem, method: str) -> None:
    try:
        one = solve(problem, method=method)
    except InvalidInputError:
        return
    two = solve(beside(problem, Interference(0, Fraction(0), Fraction(1))), method=method)
    assert (one.plan, one.objective_ns, one.lower_bound_ns) == (
        two.plan,
        two.objective_ns,
        two.lower_bound_ns,
    )


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
    assert short <= long + rounding(len(plan.transfers))
    for option in problem.options:
        for mode in MODES:
            if problem.room(mode) is None:
                assert bound(problem, option, mode) <= bound(more, option, mode)


@settings(max_examples=25)
@given(disturbed(problems(cluster=whole_rates(), capped=False)), st.integers(2, 1000))
def test_slower_by_a_factor_costs_that_much_more(problem: Problem, factor: int) -> None:
    slow = slower(problem, factor)
    for method in ("ddp", "layer_by_layer", "ps", "auto"):
        plan = solve(problem, method=method).plan
        assert plan is not None
        off = evaluate(slow, plan).iteration_ns - factor * evaluate(problem, plan).iteration_ns
        assert abs(off) <= 2 * factor * rounding(len(plan.transfers))


@settings(max_examples=25)
@given(disturbed(problems(capped=False)))
def test_a_schedule_that_forgets_the_interference_is_none(problem: Problem) -> None:
    try:
        plan = solve(problem, method="ps").plan
    except NotApplicableError:  # servers have failed
        return
    assert plan is not None
    right = evaluate(problem, plan)
    forgot = evaluate(beside(problem, ALONE), plan)
    if forgot.iteration_ns < right.iteration_ns - rounding(len(plan.transfers)) * 4:
        with pytest.raises(InvalidPlanError):
            check_times(problem, plan, forgot.iteration)


def test_what_is_no_interference_is_refused() -> None:
    nic = Nic(Fraction(10**9), 5)
    with pytest.raises(InvalidInputError) as caught:
        Cluster("one", "a test", 2, Switch(2), nic, interference=3)  # type: ignore[arg-type]
    assert caught.value.path == "interference"
