"""Every method: its time, its bound, its pieces and what it does without time; asking in vain."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.bml import (
    BML,
    METHODS,
    Damage,
    Failures,
    Problem,
    Schedule,
    TreePlan,
    methods,
    solve,
)
from planner.families.bml.evaluation import busiest_load, evaluate, time_ns
from planner.families.bml.problem import MAX_DAMAGED_NICS, MAX_LAYERS
from planner.families.bml.reroute import detour
from planner.families.bml.trees import Plan
from planner.model.errors import NotApplicableError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.deadline import NEVER, Deadline
from planner.solving.methods import Outcome
from planner.solving.result import Status
from tests.bml.networks import connected, damaged_networks, distances, links_left, small_bcubes
from tests.bml.plans import NET, detoured, problems, tree_planned
from tests.formats.refused import refused
from tests.present import present
from tests.solved import Solved

AROUND = ("detour", "trees")
"""Methods that know failures, beside auto."""


@pytest.mark.slow
@settings(max_examples=60)
@given(damaged_networks(most=2), st.data())
def test_methods_around_failures(network: tuple[BCube, Failures], data: st.DataObject) -> None:
    assume(network[1])
    problem = data.draw(problems(*network))
    best = [solve(problem, method="trees")]
    with suppress(NotApplicableError):
        best.append(solve(problem, method="detour"))
    assert [result.method for result in best] == ["trees", "detour"][: len(best)]
    chosen = solve(problem)
    assert chosen.method in AROUND
    assert chosen.objective_ns == min(result.objective_ns or 0 for result in best)
    with refused("method", "", NotApplicableError):
        solve(problem, method="bml")


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
    whole = 2 * levels * latency + sent + added
    assert methods.ideal_ns(problem) == whole
    results = [solve(problem, method=method) for method in ("auto", "bml", "detour")]
    assert [result.method for result in results] == ["bml", "bml", "detour"]
    for result in results:
        assert result.plan == Schedule(bcube)
        assert result.objective_ns == whole
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
        links = Network(Fraction(10**9), latency, Fraction(adding))
        return methods.lower_bound_ns(Problem(bcube, links, size, failed=failed), damage)

    if size == 0 or living == 1:
        assert bound(latency=9, adding=9) == 0
        return
    assert bound() >= Fraction(2 * (living - 1), living * bcube.k) * size
    assert 1000 <= bound(latency=1000) - bound() <= 1000 * far
    adding = bound(adding=10**6) - bound()
    assert abs(adding - Fraction(10**6 * (living - 1) * size, living)) <= 1


@pytest.mark.parametrize("method", ["trees", "auto"])
def test_trees_prove_more_than_counting_does(method: str) -> None:
    """Two NICs of BCube(3, 2) are lost: by trees 4/3 of the gradient, by counting NICs 1."""
    failed = Failures(nics=frozenset({(0, 0), (3, 0)}))
    problem = Problem(BCube(3, 2), NET, 3 * 10**6, failed=failed)
    damage = Damage(problem.bcube, failed)
    assert damage.load_bound() == 1
    assert methods.lower_bound_ns(problem, damage) == 3 * 10**6
    assert solve(problem, method=method).lower_bound_ns == 4 * 10**6


@pytest.mark.parametrize("method", ["auto", *AROUND])
def test_the_last_server_has_nothing_to_do(method: str) -> None:
    dead = frozenset({0, 1, 2, 4, 5, 6, 7, 8})
    problem = Problem(BCube(3, 2), Network(Fraction(10**9), 5), 999, failed=Failures(dead))
    result = solve(problem, method=method)
    assert (result.objective_ns, result.status) == (0, Status.OPTIMAL)
    assert result.plan is not None
    assert not list(result.plan.transfers(3))
    assert not isinstance(result.plan, TreePlan) or result.plan.owner(0, 0) == 3


def test_the_largest_of_all() -> None:
    network = Network(Fraction(2**62))
    result = solve(Problem(BCube(4, 3), network, 2**62))
    least = ceil(Fraction(2 * 63 * 10**9, 3 * 64))
    assert result.lower_bound_ns == least
    # Pieces differ by a byte, links carry 2^62 a second.
    assert present(result.objective_ns) - least <= 1
    for bcube in (BCube(2, 56), BCube(2**30, 2), BCube(2**62, 1)):
        assert solve(Problem(bcube, network, 2**62)).plan == Schedule(bcube)


# --- how `auto` chooses

FAST = Network(Fraction(5 * 10**9))
ONE_SWITCH_LEFT = Failures(switches=frozenset((0, switch) for switch in range(3)))
LOST = Failures(nics=frozenset({(5, 1)}))
DEAD = Failures(servers=frozenset({5}))
HOPELESS = Failures(nics=frozenset({(0, 0), (1, 1), (3, 0), (8, 0)}))
"""On BCube(3, 2): whole, but no piece can be summed up with detours of one hop."""


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("not asked for")


def test_far_from_the_bound_trees_are_tried_in_larger_networks_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(methods, "TREES_MAX_NICS", 0)
    far = Problem(BCube(4, 2), FAST, 10**9, failed=ONE_SWITCH_LEFT)
    result = solve(far)
    assert result.method == "trees"
    assert present(result.gap) < 0.02
    assert solve(far, method="detour").gap == pytest.approx(1, abs=0.02)
    monkeypatch.setattr(methods, "pack", refuse)
    assert solve(Problem(BCube(4, 2), FAST, 10**9, failed=LOST)).method == "detour"


@pytest.mark.parametrize("failed", [ONE_SWITCH_LEFT, LOST, DEAD])
def test_large_networks_are_not_given_to_the_linear_program(
    failed: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "PACKED_MAX_NICS", 0)
    monkeypatch.setattr(methods, "pack", refuse)
    result = solve(Problem(BCube(4, 2), FAST, 10**9, failed=failed), method="trees")
    assert isinstance(result.plan, TreePlan)
    assert present(result.gap) < 0.2


# --- without time


def hasty(problem: Problem, method: str, monkeypatch: pytest.MonkeyPatch) -> Outcome[Plan]:
    """Return a method's outcome with a deadline that has passed for all optional work."""
    monkeypatch.setattr("planner.families.bml.reroute.GRACE_S", 600)
    return METHODS[method](problem, Deadline(1e-9))


def test_without_time_detours_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(BCube(4, 3), FAST, 10**9, failed=LOST)
    first = hasty(problem, "detour", monkeypatch)
    assert first.plan == detour(Damage(problem.bcube, LOST))
    assert first.timed_out
    better = Solved.of(solve(problem, method="detour"))
    assert better.iteration_ns < time_ns(problem, first.plan)
    assert busiest_load(better.plan) < busiest_load(first.plan)


@pytest.mark.parametrize("method", ["auto", "trees"])
def test_without_time_and_without_detours_there_is_a_plan_too(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(BCube(3, 2), FAST, 10**9, failed=HOPELESS)
    with refused("failed", "", NotApplicableError):
        solve(problem, method="detour")
    first = hasty(problem, method, monkeypatch)
    assert isinstance(first.plan, TreePlan)
    BML.check(problem, first.plan, NEVER)
    best = solve(problem, method=method)
    assert best.method == "trees"
    assert Solved.of(best).iteration_ns <= time_ns(problem, first.plan)


# --- pieces cut into parts


@given(detoured() | tree_planned())
def test_no_plan_gets_slower(case: tuple[Problem, Any]) -> None:
    problem, plan = case[0], replace(case[1], rounds=1)
    better = methods.with_best_rounds(problem, plan)
    assert replace(better, rounds=1) == plan
    assert 1 <= better.rounds <= methods.MAX_ROUNDS
    assert evaluate(problem, better).time_ns <= evaluate(problem, plan).time_ns
    assert methods.with_best_rounds(problem, plan) == better


def planned_around(size: int, latency: int) -> tuple[Problem, Schedule]:
    bcube, failed = BCube(3, 2), Failures(nics=frozenset({(0, 0)}))
    problem = Problem(bcube, Network(Fraction(10**9), latency), size, failed=failed)
    return problem, detour(Damage(bcube, failed))


def test_parts_help_where_steps_are_uneven() -> None:
    """Around a lost NIC one step waits for a busy NIC; in parts, all steps share the wait."""
    problem, plan = planned_around(10**8, 1000)
    better = methods.with_best_rounds(problem, plan)
    assert better.rounds >= 2 * plan.steps
    once, often = (evaluate(problem, one) for one in (plan, better))
    assert often.time_ns < once.time_ns
    assert (often.load, often.steps) == (once.load, once.steps)
    # What remains is the busiest NIC, and a little for start-up costs.
    busiest = problem.network.time(once.load * problem.size_bytes)
    assert busiest <= often.time_ns < busiest * Fraction(102, 100)


def test_parts_of_whole_elements_are_tried_too() -> None:
    """1,024 rounds leave parts of one or two elements; 714 of two take less."""
    problem, plan = planned_around(80_000, 0)
    problem = replace(problem, network=FAST, element_bytes=4)
    most = replace(plan, rounds=1024)
    assert time_ns(problem, methods.with_best_rounds(problem, plan)) < time_ns(problem, most)


@pytest.mark.parametrize(
    ("size", "latency"), [(10**6, 10**9), *((size, 0) for size in (0, 1, 12, 60))]
)
def test_high_start_ups_and_small_gradients_leave_one_round(size: int, latency: int) -> None:
    problem, plan = planned_around(size, latency)
    assert methods.with_best_rounds(problem, plan) == plan


# --- no plan


@settings(max_examples=100)
@given(damaged_networks(cut=True, most=8), st.sampled_from(sorted(METHODS)))
def test_infeasible_exactly_when_cut(network: tuple[BCube, Failures], method: str) -> None:
    bcube, failed = network
    links = links_left(bcube, failed)
    if connected(links):
        assert not Damage(bcube, failed).cut_off()
        return
    result = solve(Problem(bcube, NET, 100, failed=failed), method=method)
    assert result.status == Status.INFEASIBLE
    found = present(result.infeasibility)
    named = [name.removeprefix("failed.") for name in found.binding]
    assert named
    assert all(getattr(failed, kind) for kind in named)
    if links:
        part = Damage(bcube, failed).cut_off()
        assert str(list(bcube.digits(part[0]))) in found.reason
        assert f"the other {len(links) - len(part)} " in found.reason


def test_of_many_servers_that_are_cut_off_a_few_are_named() -> None:
    failed = Failures(switches=frozenset((3, switch) for switch in range(64)))
    found = present(solve(Problem(BCube(4, 4), NET, 1, failed=failed)).infeasibility)
    assert found.binding == ("failed.switches",)
    assert "and 184 more from the other 64" in found.reason
    assert found.reason.count("[") == 8


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "trees"])
@pytest.mark.parametrize(
    ("bcube", "failed"),
    [(BCube(700, 2), {"switches": {(0, 3)}}), (BCube(2, 16), {"servers": {1}})],
)
def test_a_time_limit_holds_for_damage_detours_trees_and_checks(
    bcube: BCube, failed: Any, method: str
) -> None:
    problem = Problem(bcube, NET, 10**6, failed=Failures(**failed))
    begin = time.process_time()
    result = solve(problem, method=method, time_limit=0.01)
    assert time.process_time() - begin < 1.5
    assert result.status == Status.TIME_LIMIT
    assert result.plan or present(result.infeasibility).binding == ("time_limit_s",)


@pytest.mark.parametrize(
    "bcube", [BCube(16, 2), BCube(2, 16), BCube(10, 6), BCube(51, 10), BCube(2**62, 1)]
)
def test_without_failures_there_is_a_plan_however_short_the_time_is(bcube: BCube) -> None:
    problem = Problem(bcube, NET, 10**6)
    assert isinstance(solve(problem, time_limit=1e-9).plan, Schedule)
    if bcube.nics > MAX_DAMAGED_NICS:
        with pytest.raises(NotApplicableError, match="at most 1048576 NICs"):
            solve(problem, method="trees")


def test_importing_loads_no_heavy_library() -> None:
    heavy = ("numpy", "scipy", "ortools", "pulp", "torch", "matplotlib")
    loaded = f"len([name for name in {heavy} if name in sys.modules])"
    code = f"import sys, planner.bml, planner.yan; sys.exit({loaded})"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- problems that mean nothing, or do not fit

Make = Callable[[], object]


def problem(size: Any = None, *, network: Network = NET, **fields: Any) -> Make:
    return lambda: Problem(BCube(2, 1), network, size, **fields)


def failing(k: int = 2, **failed: Any) -> Make:
    return lambda: Problem(BCube(3, k), NET, 9, failed=Failures(**failed))


SLOW = Network(Fraction(1, 100))
LATE = Network(Fraction(10**9), 2**62)
"""T_F just fits, and all start-up costs together do not."""
WIDE = f"expected a network of at most {MAX_DAMAGED_NICS} NICs"


@pytest.mark.parametrize(
    ("make", "path", "message"),
    [
        (problem(), "gradient_bytes", "missing"),
        (problem(2**62 + 1), "gradient_bytes", "expected an integer <="),
        (problem(layer_bytes=(2**62, 1)), "layer_bytes", "expected a sum <="),
        (problem(layer_bytes=(1,) * (MAX_LAYERS + 1)), "layer_bytes", "4096 layers, got 4097"),
        (problem(4, layer_bytes=(1, 2)), "gradient_bytes", "sum of layer_bytes (3), got 4"),
        (problem(4, element_bytes=0), "element_bytes", "expected an integer >= 1, got 0"),
        (problem(6, element_bytes=4), "gradient_bytes", "multiple of element_bytes (4), got 6"),
        (problem(layer_bytes=(4, 6), element_bytes=4), "layer_bytes[1]", "bytes (4), got 6"),
        (problem(2**62, network=SLOW), "link_bytes_per_s", "send the gradient must fit in 63 bits"),
        (failing(servers={9}), "failed.servers", "expected an integer <= 8, got 9"),
        (failing(servers={"a"}), "failed.servers", "got 'a'"),
        (failing(nics={3}), "failed.nics", "expected pairs, got 3"),
        (failing(nics={(9, 0)}), "failed.nics", "expected an integer <= 8, got 9"),
        (failing(nics={(0, 2)}), "failed.nics", "expected an integer <= 1, got 2"),
        (failing(switches={(2, 0)}), "failed.switches", "expected an integer <= 1"),
        (failing(switches={(0, 3)}), "failed.switches", "expected an integer <= 2, got 3"),
        (failing(servers=3), "servers", "expected a set, got 3"),
        (failing(nics="00"), "nics", "expected a set, got '00'"),
        (failing(nics=[[0, 1]]), "nics", "expected a set of integers or of pairs"),
        (failing(11, servers={0}), "failed", WIDE),
        (lambda: solve(Problem(BCube(2, 3), LATE, 8)), "latency_ns", "the time must fit in 63"),
    ],
)
def test_what_means_nothing_is_refused(make: Make, path: str, message: str) -> None:
    with refused(path, re.escape(message)):
        make()


def test_lists_and_numbers_of_numpy_will_do() -> None:
    lists: Any = [np.int64(0)], [(1, np.int32(1))], [(0, 2)]
    failed = Failures(*lists)
    assert failed == Failures(frozenset({0}), frozenset({(1, 1)}), frozenset({(0, 2)}))
    assert repr(failed) == "Failures(servers=[0], nics=[(1, 1)], switches=[(0, 2)])"
    assert failed
    assert not Failures()
    layers = Problem(BCube(3, 2), NET, layer_bytes=[1, 2])  # type: ignore[arg-type]
    assert (layers.layer_bytes, layers.size_bytes, layers.chunks) == ((1, 2), 3, (1, 2))
    one = Problem(BCube(3, 2), NET, 3, [])  # type: ignore[arg-type]
    assert {one} == {Problem(BCube(3, 2), NET, 3)}
    assert one.chunks == (3,)
