"""How `auto` chooses, and how plans around failures are kept near their bound."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from planner.families.bml import (
    Damage,
    Failures,
    Problem,
    TreePlan,
    family,
    methods,
    packing,
    solve,
)
from planner.families.bml.checker import CheckerContext, check
from planner.families.bml.evaluation import busiest_load, time_ns
from planner.families.bml.methods import with_best_rounds
from planner.families.bml.reroute import detour
from planner.families.bml.trees import Plan
from planner.model.errors import NotApplicableError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome

FAST = Network(Fraction(5 * 10**9))
ONE_SWITCH_LEFT = Failures(switches=frozenset((0, switch) for switch in range(3)))
LOST = Failures(nics=frozenset({(5, 1)}))


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("not asked for")


def test_what_one_server_sends_around_takes_different_ways() -> None:
    """So do slices of a lost NIC, and of those who would send to a dead server."""
    bcube = BCube(8, 2)
    for failed in (LOST, Failures(servers=frozenset({5}))):
        ways = Counter(
            (one.thread, one.step, part.via)
            for one in detour(Damage(bcube, failed)).detours
            for part in one.parts
            if one.sender == 5 or one.receiver == 5
        )
        # As many detours as neighbours, in two directions at most.
        assert max(ways.values()) <= 2


def test_far_from_the_bound_trees_are_tried_in_larger_networks_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(methods, "TREES_MAX_NICS", 0)
    far = Problem(BCube(4, 2), FAST, 10**9, failed=ONE_SWITCH_LEFT)
    result = solve(far)
    assert result.method == "trees"
    assert result.gap is not None
    assert result.gap < 0.02
    assert solve(far, method="detour").gap == pytest.approx(1, abs=0.02)
    monkeypatch.setattr(packing, "pack", refuse)
    assert solve(Problem(BCube(4, 2), FAST, 10**9, failed=LOST)).method == "detour"


def test_large_networks_are_not_given_to_the_linear_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(methods, "PACKED_MAX_NICS", 0)
    monkeypatch.setattr(packing, "pack", refuse)
    for failed in (ONE_SWITCH_LEFT, LOST, Failures(servers=frozenset({5}))):
        bcube = BCube(4, 2)
        result = solve(Problem(bcube, FAST, 10**9, failed=failed), method="trees")
        assert isinstance(result.plan, TreePlan)
        damage = Damage(bcube, failed)
        check(CheckerContext(bcube, damage.dead, damage.down), result.plan)
        assert result.gap is not None
        assert result.gap < 0.2


def hasty(problem: Problem, method: str) -> Outcome[Plan]:
    """Return what a method makes when its time is up but there is still some for what must be."""
    return family.METHODS[method](problem, Deadline(1e-9))


@pytest.fixture(autouse=True)
def time_for_what_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.families.bml.reroute.GRACE_S", 600)


def test_without_time_detours_stay_as_they_are() -> None:
    bcube = BCube(4, 3)
    problem = Problem(bcube, FAST, 10**9, failed=LOST)
    first = hasty(problem, "detour")
    assert first.plan == detour(Damage(bcube, LOST))
    assert first.timed_out
    better = solve(problem, method="detour")
    assert better.objective_ns is not None
    assert better.objective_ns < time_ns(problem, first.plan)
    assert better.plan is not None
    assert busiest_load(better.plan) < busiest_load(first.plan)


def test_parts_of_whole_elements_are_tried_too() -> None:
    """1,024 rounds leave parts of one or two elements; 714 of two take less."""
    failed = Failures(nics=frozenset({(0, 0)}))
    problem = Problem(BCube(3, 2), FAST, 80_000, element_bytes=4, failed=failed)
    plan = detour(Damage(problem.bcube, failed))
    most = replace(plan, rounds=1024)
    assert time_ns(problem, with_best_rounds(problem, plan)) < time_ns(problem, most)


def test_without_time_and_without_detours_there_is_a_plan_too() -> None:
    bcube = BCube(3, 2)
    failed = Failures(nics=frozenset({(0, 0), (1, 1), (3, 0), (8, 0)}))
    with pytest.raises(NotApplicableError):
        detour(Damage(bcube, failed))
    problem = Problem(bcube, FAST, 10**9, failed=failed)
    for method in ("auto", "trees"):
        first = hasty(problem, method)
        assert isinstance(first.plan, TreePlan)
        damage = Damage(bcube, failed)
        check(CheckerContext(bcube, damage.dead, damage.down), first.plan)
        best = solve(problem, method=method)
        assert best.objective_ns is not None
        assert best.objective_ns <= time_ns(problem, first.plan)
