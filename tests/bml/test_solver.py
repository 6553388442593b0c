"""Every method: its plan is checked, priced and bounded; and every way to ask in vain."""

import subprocess
import sys
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.bml import (
    METHODS,
    CheckerContext,
    Damage,
    Failures,
    Problem,
    Schedule,
    TreePlan,
    check,
    evaluate,
    ideal_ns,
    lower_bound_ns,
    solve,
)
from planner.families.bml.family import BML
from planner.families.bml.problem import MAX_DAMAGED_NICS
from planner.model.errors import NotApplicableError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.deadline import NEVER
from planner.solving.result import Result, Status
from tests.bml.networks import (
    connected,
    damaged_networks,
    distances,
    links_left,
    small_bcubes,
)
from tests.bml.plans import problems
from tests.bml.simulator import simulate

AROUND = ("detour", "trees")
"""Methods that know failures, beside auto."""

HOPELESS = Failures(nics=frozenset({(0, 0), (1, 1), (3, 0), (8, 0)}))
"""On BCube(3, 2): whole, but no piece can be summed up with detours of one hop."""


@st.composite
def damaged(draw: st.DrawFn, *, most: int = 2) -> Problem:
    bcube, failed = draw(damaged_networks(most=most))
    assume(failed)
    return draw(problems(bcube, failed))


def assert_answered(problem: Problem, result: Result[Any, Any]) -> None:
    """Check what every answer with a plan is."""
    damage = Damage(problem.bcube, problem.failed)
    plan = result.plan
    assert isinstance(plan, Schedule | TreePlan)
    check(CheckerContext(damage.bcube, damage.dead, damage.down), plan)
    assert result.infeasibility is None
    assert result.objective_ns is not None
    assert result.lower_bound_ns is not None
    assert result.objective_ns == evaluate(problem, plan).time_ns
    assert result.objective_ns == simulate(problem, plan).time_ns
    assert lower_bound_ns(problem, damage) <= result.lower_bound_ns <= result.objective_ns
    assert (result.status == Status.OPTIMAL) == (result.objective_ns == result.lower_bound_ns)


@pytest.mark.slow
@settings(max_examples=60)
@given(damaged())
def test_methods_around_failures(problem: Problem) -> None:
    best = []
    for method in AROUND:
        try:
            result = solve(problem, method=method)
        except NotApplicableError:
            assert method == "detour"
            continue
        assert result.method == method
        assert_answered(problem, result)
        best.append(result.objective_ns)
    chosen = solve(problem)
    assert_answered(problem, chosen)
    assert chosen.method in AROUND
    assert chosen.objective_ns == min(one for one in best if one is not None)
    with pytest.raises(NotApplicableError) as error:
        solve(problem, method="bml")
    assert error.value.path == "method"


@settings(max_examples=60)
@given(small_bcubes, st.data())
def test_methods_without_failures(bcube: BCube, data: st.DataObject) -> None:
    problem = data.draw(problems(bcube))
    bml, auto, detour = (solve(problem, method=m) for m in ("bml", "auto", "detour"))
    assert_answered(problem, bml)
    assert bml.plan == auto.plan == detour.plan == Schedule(bcube)
    assert auto.method == bml.method == "bml"
    assert bml.objective_ns is not None
    assert ideal_ns(problem) <= bml.objective_ns


@given(small_bcubes, st.integers(1, 50), st.integers(0, 10**4), st.integers(0, 5))
def test_start_up_costs_and_adding_come_on_top(
    bcube: BCube, share: int, latency: int, adding: int
) -> None:
    """2(N-1)/(kN)·T_F, 2k start-up costs, and each server adds (N-1)/N of the gradient."""
    size = bcube.nics * share
    servers, levels = bcube.servers, bcube.k
    problem = Problem(bcube, Network(Fraction(10**9), latency, Fraction(adding)), size)
    sent = Fraction(2 * (servers - 1), levels * servers) * size
    added = Fraction(servers - 1, servers) * size * adding
    result = solve(problem)
    assert result.objective_ns == 2 * levels * latency + sent + added == ideal_ns(problem)
    assert (result.status == Status.OPTIMAL) == (latency == 0)  # no plan can beat that


@settings(max_examples=80)
@given(damaged_networks(most=3), st.integers(0, 400))
def test_the_lower_bound_is_made_of_loads_adding_and_distance(
    network: tuple[BCube, Failures], size: int
) -> None:
    """Each of the three parts alone is what the plan at hand cannot avoid."""
    bcube, failed = network
    damage, links = Damage(bcube, failed), links_left(bcube, failed)
    living = len(links)
    far = max(max(distances(links, link).values()) for link in links)

    def bound(*, latency: int = 0, adding: int = 0) -> int:
        return lower_bound_ns(
            Problem(
                bcube, Network(Fraction(10**9), latency, Fraction(adding)), size, failed=failed
            ),
            damage,
        )

    if size == 0 or living == 1:
        assert bound(latency=9, adding=9) == 0
        return
    assert bound() >= Fraction(2 * (living - 1), len(links) * bcube.k) * size
    assert 1000 <= bound(latency=1000) - bound() <= 1000 * far
    adding = bound(adding=10**6) - bound()
    assert abs(adding - Fraction(10**6 * (living - 1) * size, living)) <= 1


def test_trees_prove_more_than_counting_does() -> None:
    """Two NICs of BCube(3, 2) are lost: by trees 4/3 of the gradient, by counting NICs 1."""
    failed = Failures(nics=frozenset({(0, 0), (3, 0)}))
    problem = Problem(BCube(3, 2), Network(Fraction(10**9)), 3 * 10**6, failed=failed)
    damage = Damage(problem.bcube, failed)
    assert damage.load_bound() == 1
    assert lower_bound_ns(problem, damage) == 3 * 10**6
    for method in ("trees", "auto"):
        result = solve(problem, method=method)
        assert result.lower_bound_ns == 4 * 10**6
        assert_answered(problem, result)


def test_where_detours_cannot_help_trees_do() -> None:
    problem = Problem(BCube(3, 2), Network(Fraction(10**9)), 900, failed=HOPELESS)
    with pytest.raises(NotApplicableError) as error:
        solve(problem, method="detour")
    assert error.value.path == "failed"
    result = solve(problem)
    assert result.method == "trees"
    assert isinstance(result.plan, TreePlan)
    assert_answered(problem, result)


@pytest.mark.parametrize("method", ["auto", "detour", "trees"])
def test_the_last_server_has_nothing_to_do(method: str) -> None:
    dead = frozenset({0, 1, 2, 4, 5, 6, 7, 8})
    problem = Problem(BCube(3, 2), Network(Fraction(10**9), 5), 999, failed=Failures(dead))
    result = solve(problem, method=method)
    assert_answered(problem, result)
    assert (result.objective_ns, result.status) == (0, Status.OPTIMAL)
    plan = result.plan
    assert isinstance(plan, Schedule | TreePlan)
    assert not list(plan.transfers(3))
    if isinstance(plan, TreePlan):
        assert plan.owner(0, 0) == 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layers", [(0,), (1,), (7,), (17,), (0, 17, 0, 0), (0, 0)])
def test_gradients_smaller_than_the_number_of_pieces(method: str, layers: tuple[int, ...]) -> None:
    """18 pieces: some are empty, and a step or a layer in which all are costs nothing."""
    failed = Failures() if method == "bml" else Failures(nics=frozenset({(0, 0)}))
    network, size = Network(Fraction(10**9), 1000), sum(layers)
    problem = Problem(BCube(3, 2), network, layer_bytes=layers, failed=failed)
    result = solve(problem, method=method)
    assert_answered(problem, result)
    assert (result.objective_ns == 0) == (size == 0)
    one = solve(Problem(BCube(3, 2), network, size, failed=failed), method=method)
    assert result.objective_ns == one.objective_ns


# --- no plan


@settings(max_examples=100)
@given(damaged_networks(cut=True, most=8), st.sampled_from(sorted(METHODS)))
def test_infeasible_exactly_when_cut(network: tuple[BCube, Failures], method: str) -> None:
    bcube, failed = network
    links = links_left(bcube, failed)
    problem = Problem(bcube, Network(Fraction(10**9)), 100, failed=failed)
    if connected(links):
        assert not Damage(bcube, failed).cut_off()
        return
    result = solve(problem, method=method)
    assert result.status == Status.INFEASIBLE
    assert result.plan is None
    assert result.objective_ns is None
    assert result.infeasibility is not None
    assert result.infeasibility.binding
    for name in result.infeasibility.binding:
        group, _, kind = name.partition(".")
        assert group == "failed"
        assert getattr(failed, kind)
    if links:
        part = Damage(bcube, failed).cut_off()
        assert str(list(bcube.digits(part[0]))) in result.infeasibility.reason
        assert f"the other {len(links) - len(part)} " in result.infeasibility.reason


def test_the_part_cut_off_is_named() -> None:
    bcube, network = BCube(3, 2), Network(Fraction(10**9))
    alone = Failures(nics=frozenset({(5, 0), (5, 1)}))
    result = solve(Problem(bcube, network, 1, failed=alone))
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("failed.nics",)
    assert "server [1, 2] from the other 8" in result.infeasibility.reason
    levels = Failures(switches=frozenset((3, switch) for switch in range(64)))
    result = solve(Problem(BCube(4, 4), network, 1, failed=levels))
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("failed.switches",)
    assert "and 184 more from the other 64" in result.infeasibility.reason
    assert result.infeasibility.reason.count("[") == 8


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "detour", "trees"])
@pytest.mark.parametrize(
    "network",
    [
        (BCube(700, 2), Failures(switches=frozenset({(0, 3)}))),
        (BCube(2, 16), Failures(servers=frozenset({1}))),
    ],
)
def test_a_time_limit_holds_for_damage_detours_trees_and_checks(
    network: tuple[BCube, Failures], method: str
) -> None:
    problem = Problem(network[0], Network(Fraction(10**9)), 10**6, failed=network[1])
    begin = time.process_time()
    result = solve(problem, method=method, time_limit=0.01)
    assert time.process_time() - begin < 1.5
    assert result.status == Status.TIME_LIMIT
    if result.plan is None:
        assert result.infeasibility is not None
        assert result.infeasibility.binding == ("time_limit_s",)


@pytest.mark.parametrize(
    "network", [BCube(16, 2), BCube(2, 16), BCube(10, 6), BCube(51, 10), BCube(2**62, 1)]
)
def test_without_failures_there_is_a_plan_however_short_the_time_is(network: BCube) -> None:
    problem = Problem(network, Network(Fraction(10**9)), 10**6)
    begin = time.process_time()
    result = solve(problem, time_limit=1e-9)
    took = time.process_time() - begin
    assert isinstance(result.plan, Schedule)
    begin = time.process_time()
    BML.check(problem, result.plan, NEVER)
    # Most of it is the check, by which slow machines are told from slow code.
    assert took < max(1.5, 3 * (time.process_time() - begin))
    if network.nics > MAX_DAMAGED_NICS:
        with pytest.raises(NotApplicableError, match="at most 1048576 NICs"):
            solve(problem, method="trees")


def test_importing_loads_no_heavy_library() -> None:
    heavy = ("numpy", "scipy", "ortools", "pulp", "torch", "matplotlib")
    code = f"import sys, planner.bml; print([x for x in {heavy} if x in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
