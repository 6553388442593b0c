"""Whole iterations: prices event by event, bounds, and every method, also under contention.

Bounds are held against all plans of whole parameters; those of sharded plans against a dynamic
program. They are met where they can be, and are near where they cannot.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.caramel.grid_costs import GridCost
from planner.families.caramel.windows import Windows
from planner.families.iteration import (
    METHODS,
    MODES,
    Problem,
    bound,
    check,
    evaluate,
    network_bound,
    solve,
)
from planner.families.iteration import bounds as module
from planner.families.iteration.alternatives import Planner
from planner.families.iteration.baselines import (
    BASELINES,
    BY_ANY_ALGORITHM,
    both_ways,
    enforced,
    plans_by,
)
from planner.families.iteration.bounds import sharded_bound, tightened_bound
from planner.families.iteration.evaluation import check_times
from planner.families.iteration.plan import BML, Mode
from planner.families.iteration.pushes_in_forward_bound import right_pushes_bound
from planner.families.iteration.transfers import assign_algorithms
from planner.model.clusters import Cluster, Nic
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.costs import AffineCost, DepthCost, TransferCost
from planner.model.errors import InvalidPlanError, NotApplicableError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.topologies import BCube, Rails
from planner.solving.deadline import NEVER
from tests.caramel.test_bounds import depth_costs, lines
from tests.caramel.window_strategies import sides
from tests.iteration import brute_force
from tests.iteration.brute_force import best_sharded
from tests.iteration.iteration_strategies import (
    beside,
    clusters,
    disturbed,
    measured,
    problems,
    rounding,
    whole_rates,
)
from tests.iteration.making import chain, on_switch, price, solved
from tests.iteration.pricing import lasts
from tests.iteration.test_tables import costs
from tests.present import present


@st.composite
def several_costs(draw: st.DrawFn) -> Cluster:
    """Clusters on which small and large transfers want different algorithms."""
    hosts, accelerators = draw(st.sampled_from([(2, 2), (2, 4), (3, 2), (4, 2), (3, 4)]))
    link = Fraction(10**9 * draw(st.integers(1, 3)))
    rails = Rails(hosts, accelerators, link, draw(st.integers(0, 9)))
    nic = Nic(Fraction(10**9, draw(st.integers(1, 12))), draw(st.integers(1, 30)), accelerators)
    return Cluster("several", "a test", hosts, rails, nic)


mixing = clusters(single=False) | several_costs()
two = problems(cluster=mixing, max_parameters=2, capped=False, one_order=True)


@pytest.mark.slow
@settings(max_examples=40)
@given(problems(cluster=whole_rates(), max_parameters=3, capped=False, one_order=True))
def test_both_ways_is_the_best_of_pushes_before_pulls_and_auto_is_no_worse(
    problem: Problem,
) -> None:
    _, objective, least = solved(problem)
    for place, option in enumerate(problem.single):
        known = (brute_force.replicated, brute_force.pushes_then_pulls)
        alike, apart = (
            min(price(problem, plan) for plan in made(problem, option.algorithm)) for made in known
        )
        assert max(least, objective) <= min(alike, apart)
        if place == 0:
            plan = enforced(problem, option.algorithm, both_ways(problem, option))
            check(problem, plan)
            assert price(problem, plan) == apart


@pytest.mark.parametrize(
    "drawn",
    [disturbed(two), two, pytest.param(measured(), marks=pytest.mark.slow)],
    ids=["contention", "alone", "measured"],
)
@settings(max_examples=60)
@given(data=st.data())
def test_no_plan_of_whole_parameters_is_below_a_bound(
    drawn: st.SearchStrategy[Problem], data: st.DataObject
) -> None:
    """By each algorithm at the depths that cost least, and by a mixture."""
    problem = data.draw(drawn)
    for option in problem.options:
        for mode, made in zip(MODES, (brute_force.replicated, brute_force.sharded), strict=True):
            least = max(bound(problem, option, mode, brief=brief) for brief in (False, True))
            for plain in made(problem, option.options[0].algorithm):
                plan = assign_algorithms(plain, option)
                check(problem, plan)
                evaluation = evaluate(problem, plan)
                check_times(problem, plan, evaluation.iteration)
                time_ns = evaluation.iteration_ns
                if problem.cluster.network is None:
                    off = abs(time_ns - lasts(problem, plan))
                    assert off <= rounding(problem, len(plan.transfers))
                assert max(least, network_bound(problem, plan)) <= time_ns
        if not problem.interference.is_none:
            break  # one algorithm is enough where both disturb each other: plans are many


def test_another_forward_order_has_another_bound() -> None:
    """The large parameter may be needed last; its time on the network is hidden then."""
    ops = Op("f1", 100, "forward"), Op("f2", 100, "forward"), Op("b", 10, "backward", ("f1", "f2"))
    large, small = Parameter("w1", 100, ("b",), ("f1",)), Parameter("w2", 2, ("b",), ("f2",))
    problem = Problem(Graph(ops, (large, small)), on_switch(2, 0))
    ring = problem.costs["ring", 1]
    every = [*brute_force.replicated(problem, "ring")]
    for forward in permutations(problem.base.order.forward):
        plans = [replace(plan, forward_order=forward) for plan in every]
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
    most: dict[str, Any] = {"pull_bytes": (2 * second,), "max_transfer_bytes": 2 * cap}
    problem = Problem(chain((7, 11, 2 * first)), on_switch(2, startup), **most)
    ring = problem.costs["ring", 1]
    pieces, pulls = -(-first // cap), -(-second // cap)
    alone = 18 + 2 * (pieces * startup + first)
    assert bound(problem, ring, "replicated") <= alone
    assert bound(problem, ring, "sharded") <= 18 + (pieces + pulls) * startup + first + second
    halves = replace(problem, max_transfer_bytes=first)
    assert bound(halves, ring, "replicated") == 18 + 2 * (2 * startup + first)


# ---
# Sharded plans.


affine = st.builds(
    AffineCost,
    st.sampled_from([1, 2, 3, 7]),
    st.builds(Fraction, st.integers(0, 8), st.sampled_from([1, 1, 3])),
)
LINES, TABLES = st.just(True), st.just(False)


@settings(max_examples=500)
@given(
    sides((2, 2, 2, 1, 1)) | sides((3, 3, 2, 1)),
    st.tuples(affine | depth_costs(), LINES) | st.tuples(costs(), TABLES),
    st.sampled_from([1, 2, 5, 16, 40]),
    st.integers(0, 30),
)
def test_no_sharded_plan_undercuts_the_bounds(
    drawn: tuple[Windows, list[int], list[int]],
    cost_and_kind: tuple[TransferCost, bool],
    grid: int,
    states: int,
) -> None:
    """Nor those of a search that is cut short."""
    (known, pushed, pulled), (cost, of_lines) = drawn, cost_and_kind
    best = best_sharded(known.heads, known.tails, pushed, pulled, cost, known.backward_ns)
    both = (GridCost.of_cost(cost, max(sum(pushed), sum(pulled))),) * 2
    found = right_pushes_bound(known, pushed, pulled, both, 10**6, grid)
    assert found <= best
    assert right_pushes_bound(known, pushed, pulled, both, best, grid) == found
    if of_lines:
        whole = sharded_bound(known, pushed, pulled, lines(cost), 0)
        with patch.object(module, "STATES", states):
            assert sharded_bound(known, pushed, pulled, lines(cost), 0) <= whole <= best


@pytest.mark.parametrize(("startup_ns", "gap"), [(60_000, 0.017), (100_000, 0.0), (150_000, 0.0)])
def test_start_ups_of_both_directions_count(startup_ns: int, gap: float) -> None:
    """Pushes, then pulls, are the best here: passes take less time than a few start-ups.

    Windows that hold both say less.
    """
    graph = chain(*[(5_000, 10_000, 10_000)] * 40)
    problem = Problem(graph, on_switch(2, startup_ns), modes=("sharded",))
    result = solve(problem)
    assert present(result.gap) <= gap
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "sharded_bound", lambda *given: given[-1])
        least = bound(problem, problem.costs["ring", 1], "sharded")
    assert least < 0.99 * (result.lower_bound_ns or 0)


@pytest.mark.slow
@pytest.mark.parametrize(("pushed", "pulled"), [((1, 6), (1, 6)), ((1, 6), (1, 1))])
def test_what_is_pushed_between_pulls_keeps_nothing_waiting(
    pushed: tuple[int, ...], pulled: tuple[int, ...]
) -> None:
    """The last gradient is pushed, and pulled, while the first parameter is computed with."""
    known = Windows(pushed, (10, 10), (40, 0), 10, 40)
    cost = DepthCost(((1, AffineCost(1, Fraction(2))), (2, AffineCost(3, Fraction(1)))))
    best = best_sharded(known.heads, known.tails, pushed, pulled, cost, known.backward_ns)
    assert best == 10 + 3 + 3 + 40
    both = (GridCost.of_cost(cost, max(sum(pushed), sum(pulled))),) * 2
    assert right_pushes_bound(known, pushed, pulled, both, 10**6) == best


def test_plans_whose_transfers_take_several_depths_are_near_their_bounds() -> None:
    """Few layers with many bytes each, on rails: every transfer is long, and depths differ.

    The quick bounds give all bytes the rate of the deepest transfer. By one line nothing is raised.
    """
    sizes = (132, 67, 50, 34, 34, 132, 42, 50, 50, 50, 132)  # MB
    ahead = (5, 107, 66, 51, 50, 1, 93, 64, 64, 63, 112)  # µs
    behind = (139, 4, 110, 86, 84, 7, 126, 109, 110, 318, 25)
    rows = zip(ahead, behind, sizes, strict=True)
    graph = chain(*((1000 * one, 1000 * two, size * 10**6) for one, two, size in rows))
    nic = Nic(Fraction(50 * 10**9), 14_000, 8, message_ns=3_000)
    rails = Rails(8, 8, Fraction(450 * 10**9), 3_400)
    problem = Problem(graph, Cluster("c", "a test", 8, rails, nic))
    result = solve(problem)
    cost = present(result.objective_ns)
    assert present(result.gap) < 0.01
    (way,) = (option for option in problem.options if option.algorithm == "hierarchical")
    for mode in MODES:
        quick = bound(problem, way, mode)
        assert quick < 0.95 * cost
        strong = tightened_bound(problem, way, mode, quick, cost)
        assert strong > 0.99 * cost
        assert tightened_bound(problem, way, mode, strong, strong) == strong  # near: nothing to do
        assert tightened_bound(problem, problem.costs["ring", 1], mode, 1, 10**9) == 1


# ---
# Every method, and what contention does.


@pytest.mark.slow
@settings(max_examples=600)
@given(
    disturbed(problems()) | problems(),
    st.sampled_from(sorted(METHODS)),
    st.integers(0, 50),
    st.integers(0, 4),
)
def test_every_method(problem: Problem, method: str, startup: int, rate: int) -> None:
    """What `planner.testing` does not know: prices event by event, and all bounds.

    What takes more from computation is not shorter.
    """
    try:
        result = solve(problem, method=method)
    except NotApplicableError:
        # Around failures there may be nothing left that libraries have.
        libraries = any(name not in BML for name in problem.by_name)
        assert method in {"bml", "bigdl", "ibatch"} or not libraries
        return
    plan, objective = result.plan, result.objective_ns
    if plan is None or objective is None:
        assert present(result.infeasibility).binding == ("max_transfer_bytes",)
        return
    rounded, taken, more = rounding(problem, len(plan.transfers)), problem.interference, problem
    assert abs(objective - lasts(problem, plan)) <= rounded
    if not taken.is_none:
        startup, per_byte = taken.startup_ns + startup, taken.ns_per_byte + rate
        more = beside(problem, replace(taken, startup_ns=startup, ns_per_byte=per_byte))
    assert objective <= price(more, plan) + rounded
    forgot = evaluate(beside(problem, NO_CONTENTION), plan)
    assert forgot.iteration_ns <= objective
    if forgot.iteration_ns < objective - 4 * rounded:  # without contention it is no schedule
        with pytest.raises(InvalidPlanError):
            check_times(problem, plan, forgot.iteration)
    assert network_bound(problem, plan) <= objective
    best = solved(problem)
    assert best.iteration_ns <= objective
    assert problem.op_order is None or best.bound_ns <= objective
    for option, mode in product(problem.options, MODES):
        room = problem.transfer_limit(mode)
        if (room is None or room >= problem.element_bytes) and option.refusal(mode) is None:
            known = bound(problem, option, mode, best.plan)
            most = tightened_bound(problem, option, mode, known, best.iteration_ns, best.plan)
            assert best.bound_ns <= most
        if room is None:
            assert bound(problem, option, mode) <= bound(more, option, mode)


def test_of_equal_algorithms_the_only_one_planned_knows_the_rules_of_the_others() -> None:
    """BigDL's plan was one of shuffles only; they cost what rings do here, and were left out."""
    forward = Op("f0", 0, "forward"), Op("f1", 0, "forward", ("f0",))
    backward = Op("b1", 0, "backward", ("f1",)), Op("b0", 1000, "backward", ("b1", "f0"))
    sent = Parameter("w0", 1, ("b1", "b0"), ("f0",)), Parameter("w1", 2, ("b1",), ("f1",))
    nic = Nic(Fraction(1_000_000), startup_ns=0)
    interference = Interference(0, Fraction(1000), Fraction(1), delay_ns=3000)
    cluster = Cluster("two", "a test", 2, BCube(2, 1), nic, interference=interference)
    problem = Problem(Graph(forward + backward, sent), cluster, pull_bytes=(1, 1), element_bytes=1)
    assert solved(problem).iteration_ns <= solved(problem, "bigdl").iteration_ns


@settings(max_examples=25)
@given(disturbed(problems(capped=False)), st.sampled_from(MODES))
def test_every_rule_is_a_plan_to_choose_from(problem: Problem, mode: Mode) -> None:
    """Whatever the search finds."""
    bad = "layer_by_layer" if mode == "replicated" else "ps"
    way = problem.options[0]
    plan = BASELINES[bad](problem, way, NEVER)
    if way.refusal(mode):
        return
    with patch.object(Planner, "sharded", lambda *_, **__: ([plan], False)):
        plans, timed_out = Planner(problem, way, NEVER).contended(mode, [plan])
    assert not timed_out
    known = plans_by(BY_ANY_ALGORITHM, problem, way, NEVER)[0]
    assert {made for made in known if made.mode == mode} <= {*plans}
