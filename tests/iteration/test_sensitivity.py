"""Sweeps over networks: against plans made for each network by themselves."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families import iteration
from planner.families.iteration import Problem
from planner.families.iteration.sensitivity import FACTORS, Knob, SweepPoint, Sweeps, sweep
from planner.model.clusters import Cluster, scaled_cluster
from planner.model.errors import NotApplicableError
from planner.solving.deadline import NEVER
from tests.iteration.iteration_strategies import clusters, problems
from tests.iteration.making import chain, on_switch
from tests.iteration.pricing import lasts

FEW = (Fraction(1, 4), Fraction(1), Fraction(3))
KNOBS: tuple[Knob, ...] = ("bandwidth", "startup")


def test_what_all_machines_share_is_bandwidth() -> None:
    shared = on_switch(3, 40, shared_bytes_per_s=Fraction(700))
    assert scaled_cluster(shared, bandwidth=Fraction(2)).shared_bytes_per_s == 1400
    assert scaled_cluster(shared, startup=Fraction(2)).shared_bytes_per_s == 700


@given(clusters(), st.sampled_from(KNOBS))
def test_factor_1_changes_nothing(cluster: Cluster, knob: Knob) -> None:
    assert scaled_cluster(cluster, **{knob: Fraction(1)}) == cluster


@pytest.mark.slow
@settings(max_examples=5)
@given(problems())
def test_points_are_those_of_plans_made_for_that_network(problem: Problem) -> None:
    found = iteration.alternatives(problem, NEVER)
    kept = iteration.best_of(problem, found, 0.0).plan
    sweeps = sweep(problem, found, FEW)
    if kept is None or sweeps is None:
        assert sweeps is None
        assert kept is None
        return
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
            others = [lasts(other, one.plan) for one in found if one.plan is not None]
            assert point.best_ns == min(anew.objective_ns, *others)
            # Solving may raise its bound further, where plans are not near it.
            assert anew.evaluation is not None
            assert point.bound_ns is not None
            computation = anew.evaluation.computation_ns
            assert computation <= point.bound_ns <= (anew.lower_bound_ns or 0)
            try:
                ddp = iteration.solve(other, method="ddp").objective_ns
            except NotApplicableError:  # around failures no library has a way
                ddp = None
            assert point.ddp_ns == ddp


def swept(startup_ns: int, *factors: Fraction, **options: Any) -> Sweeps | None:
    """Sweep two layers of 1000 bytes on two machines, each of 100 ns in both passes."""
    problem = Problem(chain(*[(100, 100, 1000)] * 2), on_switch(2, startup_ns), **options)
    told: list[tuple[str, int, int]] = []
    found = iteration.alternatives(problem, NEVER)
    sweeps = sweep(problem, found, factors or FACTORS, progress=lambda *what: told.append(what))
    count = len(set(factors or FACTORS))
    expected = [
        (f"planning with another {knob}", place, count)
        for knob in KNOBS
        for place in range(1, count + 1)
    ]
    assert told == (expected if sweeps is not None else [])
    return sweeps


def test_a_point_by_hand() -> None:
    # Two workers, a ring: an all-reduce of x bytes costs 2 start-ups and x bytes. One of 2000 bytes
    # behind the backward pass lasts 200 + 2·10 + 2000/rate, and the forward pass 200 more.
    # Factors come once and rising.
    sweeps = swept(10**6, *FEW[::-1], *FEW, algorithms=("ring",), modes=("replicated",))
    assert sweeps is not None
    together = [200 + 2 * 10**6 * factor + 2000 + 200 for factor in FEW]
    assert [one.plan_ns for one in sweeps.startup] == together
    assert [one.best_ns for one in sweeps.startup] == together
    assert {(one.best.algorithms, one.best.mode) for one in sweeps.startup} == {
        (("ring",), "replicated")
    }


def test_nothing_is_swept_without_a_plan() -> None:
    assert swept(10, max_transfer_bytes=1, element_bytes=4) is None


def test_factors_out_of_range_are_left_out() -> None:
    sweeps = swept(2**58)
    assert sweeps is not None
    assert [one.factor for one in sweeps.bandwidth] == list(FACTORS)
    left = [one.factor for one in sweeps.startup]
    assert left == list(FACTORS[: len(left)])
    assert 1 <= left[-1] < FACTORS[-1]
