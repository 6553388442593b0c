"""Sweeps over networks: against plans made for each network by themselves."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from operator import ge, le
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families import iteration
from planner.families.iteration import Problem
from planner.families.iteration.sensitivity import FACTORS, Knob, SweepPoint, sweep
from planner.model.clusters import Cluster, Nic, scaled_cluster
from planner.model.errors import NotApplicableError
from planner.model.topologies import Rails, Switch
from planner.solving.deadline import Deadline
from tests.iteration.iteration_strategies import clusters, problems
from tests.iteration.making import chain, on_switch
from tests.iteration.pricing import lasts

FEW = (Fraction(1, 4), Fraction(1), Fraction(3))
KNOBS: tuple[Knob, ...] = ("bandwidth", "startup")


def unlimited() -> Deadline:
    return Deadline.of(None)


def test_everything_of_the_network_changes_with_its_knob() -> None:
    nic = Nic(Fraction(1000), 40, 2, 8)
    rails = Cluster("r", "", 3, Rails(3, 2, Fraction(5000), 12), nic)
    faster = scaled_cluster(rails, bandwidth=Fraction(1, 8))
    assert faster.nic == Nic(Fraction(125), 40, 2, 8)
    assert faster.topology == Rails(3, 2, Fraction(625), 12)
    dearer = scaled_cluster(rails, startup=Fraction(4))
    assert dearer.nic == Nic(Fraction(1000), 160, 2, 32)
    assert dearer.topology == Rails(3, 2, Fraction(5000), 48)
    shared = Cluster("s", "", 3, Switch(3), nic, shared_bytes_per_s=Fraction(700))
    assert scaled_cluster(shared, bandwidth=Fraction(2)).shared_bytes_per_s == 1400
    assert scaled_cluster(shared, startup=Fraction(2)).shared_bytes_per_s == 700


@given(clusters(), st.sampled_from(KNOBS))
def test_factor_1_changes_nothing(cluster: Cluster, knob: Knob) -> None:
    assert scaled_cluster(cluster, **{knob: Fraction(1)}) == cluster


@pytest.mark.slow
@settings(max_examples=5)
@given(problems())
def test_points_are_those_of_plans_made_for_that_network(problem: Problem) -> None:
    found = iteration.alternatives(problem, unlimited())
    kept = iteration.best_of(problem, found, 0.0).plan
    sweeps = sweep(problem, found, FEW)
    if kept is None:
        assert sweeps is None
        return
    assert sweeps is not None
    for knob in KNOBS:
        points: tuple[SweepPoint, ...] = getattr(sweeps, knob)
        assert [one.factor for one in points] == list(FEW)
        for point in points:
            other = replace(
                problem, cluster=scaled_cluster(problem.cluster, **{knob: point.factor})
            )
            assert point.plan_ns == lasts(other, kept)
            anew = iteration.solve(other)
            assert anew.objective_ns is not None
            assert point.best_ns <= anew.objective_ns
            others = [lasts(other, one.plan) for one in found if one.plan is not None]
            assert point.best_ns == min(anew.objective_ns, *others)
            # Solving may raise its bound further, where plans are not near it.
            assert anew.evaluation is not None
            computation = anew.evaluation.computation_ns
            assert computation <= known(point)[0] <= (anew.lower_bound_ns or 0)
            try:
                ddp = iteration.solve(other, method="ddp").objective_ns
            except NotApplicableError:  # around failures no library has a way
                ddp = None
            assert point.ddp_ns == ddp


def known(point: SweepPoint) -> tuple[int, int]:
    """The bound, and what the kept plan takes."""
    assert point.bound_ns is not None
    return point.bound_ns, point.plan_ns


@pytest.mark.slow
@settings(max_examples=10)
@given(problems())
def test_a_better_network_never_lengthens_the_plan_that_is_kept(problem: Problem) -> None:
    sweeps = sweep(problem, iteration.alternatives(problem, unlimited()))
    if sweeps is None:
        return
    for slower, faster in pairwise(map(known, sweeps.bandwidth)):
        assert all(map(ge, slower, faster))
    for cheaper, dearer in pairwise(map(known, sweeps.startup)):
        assert all(map(le, cheaper, dearer))
    for point in (*sweeps.bandwidth, *sweeps.startup):
        bound, kept = known(point)
        assert bound <= point.best_ns <= kept


def small(startup_ns: int, **options: Any) -> Problem:
    """Two layers of 1000 bytes on two machines, each of 100 ns in both passes."""
    return Problem(chain(*[(100, 100, 1000)] * 2), on_switch(2, startup_ns), **options)


def test_a_point_by_hand() -> None:
    # Two workers, a ring: an all-reduce of x bytes costs 2 start-ups and x bytes. One of 2000 bytes
    # behind the backward pass lasts 200 + 2·10 + 2000/rate, and the forward pass 200 more.
    problem = small(10**6, algorithms=("ring",), modes=("replicated",))
    sweeps = sweep(problem, iteration.alternatives(problem, unlimited()), FEW)
    assert sweeps is not None
    together = [200 + 2 * 10**6 * factor + 2000 + 200 for factor in FEW]
    assert [one.plan_ns for one in sweeps.startup] == together
    assert [one.best_ns for one in sweeps.startup] == together
    assert {(one.best.algorithms, one.best.mode) for one in sweeps.startup} == {
        (("ring",), "replicated")
    }


def test_nothing_is_swept_without_a_plan() -> None:
    problem = small(10, max_transfer_bytes=1, element_bytes=4)
    assert sweep(problem, iteration.alternatives(problem, unlimited())) is None


def test_factors_out_of_range_are_left_out() -> None:
    problem = small(2**58)
    told: list[tuple[str, int, int]] = []
    found = iteration.alternatives(problem, unlimited())
    sweeps = sweep(problem, found, progress=lambda *what: told.append(what))
    assert sweeps is not None
    assert [one.factor for one in sweeps.bandwidth] == list(FACTORS)
    left = [one.factor for one in sweeps.startup]
    assert left == list(FACTORS[: len(left)])
    assert 1 <= left[-1] < FACTORS[-1]
    places = range(1, len(FACTORS) + 1)
    assert told == [
        (f"planning with another {knob}", place, len(FACTORS))
        for knob in ("bandwidth", "startup")
        for place in places
    ]


@pytest.mark.parametrize("knob", KNOBS)
def test_factors_come_once_and_rising(knob: Knob) -> None:
    problem = small(10)
    found = iteration.alternatives(problem, unlimited())
    sweeps = sweep(problem, found, (Fraction(2), Fraction(1), Fraction(2)))
    assert sweeps is not None
    assert [one.factor for one in getattr(sweeps, knob)] == [1, 2]
