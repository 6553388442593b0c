"""Shipped profiles on shipped clusters: nobody beats the joint plan, and it has a bound.

The other methods are planned apart from the joint one, so each of them is an oracle for it.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from planner.clusters import Cluster
from planner.errors import NotApplicableError
from planner.iteration import METHODS, Problem, evaluate, network_bound, solve
from planner.jsonio import decode_profile
from planner.jsonio.clusters import decode_cluster
from planner.profiles import Profile

DATA = Path(__file__).parents[2] / "data"
PROFILES = sorted(path.stem for path in (DATA / "profiles").glob("*.json"))
CLUSTERS = sorted(path.stem for path in (DATA / "clusters").glob("*.json"))
SMALL = ("lenet5", "alexnet_v2")

MEASURED = Fraction(1)
FASTER = Fraction(1, 50)
WORST = {MEASURED: 0.01, FASTER: 0.03}
"""Distances to the bound that no shipped case reaches: measured were 0.002 and 0.016."""


@cache
def profile_of(name: str) -> Profile:
    return decode_profile((DATA / "profiles" / f"{name}.json").read_bytes())


@cache
def cluster_of(name: str) -> Cluster:
    return decode_cluster((DATA / "clusters" / f"{name}.json").read_bytes())


def others(problem: Problem) -> Iterator[tuple[str, int]]:
    """Yield what an iteration takes by every other method that has a plan."""
    for method in METHODS[1:]:
        try:
            result = solve(problem, method=method)
        except NotApplicableError:
            continue
        if result.plan is not None:
            assert result.objective_ns is not None
            assert evaluate(problem, result.plan).iteration_ns == result.objective_ns
            yield method, result.objective_ns


def check(profile: str, cluster: str, scale: Fraction) -> None:
    problem = Problem.from_profile(profile_of(profile), cluster_of(cluster), computation=scale)
    joint = solve(problem)
    case = f"{profile} on {cluster}"
    assert joint.plan is not None, case
    assert joint.objective_ns is not None, case
    assert joint.lower_bound_ns is not None, case
    assert 0 < network_bound(problem, joint.plan) <= joint.lower_bound_ns, case
    assert joint.lower_bound_ns <= joint.objective_ns, case
    assert joint.objective_ns <= joint.lower_bound_ns * (1 + WORST[scale]), case
    compared = dict(others(problem))
    assert {"ddp", "caramel", "ps", "fsdp"} <= set(compared), case
    for method, time_ns in compared.items():
        assert joint.objective_ns <= time_ns, f"{case}: {method}"


def test_all_profiles_and_clusters_are_there() -> None:
    assert (len(PROFILES), len(CLUSTERS)) == (10, 12)


@pytest.mark.parametrize("scale", [MEASURED, FASTER])
@pytest.mark.parametrize("profile", SMALL)
def test_nobody_beats_the_joint_plan_of_a_small_model(profile: str, scale: Fraction) -> None:
    for cluster in CLUSTERS:
        check(profile, cluster, scale)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [MEASURED, FASTER])
@pytest.mark.parametrize("profile", [name for name in PROFILES if name not in SMALL])
def test_nobody_beats_the_joint_plan(profile: str, scale: Fraction) -> None:
    for cluster in CLUSTERS:
        check(profile, cluster, scale)
