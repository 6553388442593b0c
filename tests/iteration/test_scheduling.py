"""Group sizes of planned iterations: the cluster's constants become a problem of `drizzle`."""

from fractions import Fraction
from typing import Any

import pytest

from planner.families import drizzle
from planner.families.iteration.sizing import group_size, scheduling_problem
from planner.model.clusters import Cluster, Scheduling
from planner.model.errors import InvalidInputError, NotApplicableError
from tests.iteration.making import on_switch


def cluster(**constants: Any) -> Cluster:
    """Eight machines with two tasks each."""
    scheduling = Scheduling(**{"task_ns": 10, "tasks_per_machine": 2, **constants})
    return on_switch(8, 5, scheduling=scheduling)


def test_by_hand() -> None:
    # 16 tasks of 10 ns are 160 ns a group. Of 1000 ns at most 1 in 20 may be scheduling: 1000/19 ns
    # beside 1000 ns of computation, so a group needs 160·19/1000 = 3.04 iterations.
    found = group_size(cluster(), 1000)
    assert found.plan == drizzle.Plan(4)
    assert found.objective_ns == found.lower_bound_ns == 4 * 1000 + 160
    assert group_size(cluster(group_ns=3), 1000, max_overhead=0.5).objective_ns == 1163
    assert group_size(cluster(), 1000, max_group_ns=4160).plan == drizzle.Plan(4)
    refused = group_size(cluster(), 1000, max_group_ns=4159).infeasibility
    assert refused is not None
    assert refused.binding == ("max_overhead", "max_group_ns")


def test_every_constant_of_the_cluster_counts() -> None:
    known = {"group_ns": 700, "task_ns": 10, "constant_task_ns": 2}
    problem = scheduling_problem(cluster(**known), 1000)
    limits = {"max_overhead": Fraction(1, 20), "max_group_ns": 10_000_000_000}  # by default
    fields: dict[str, Any] = {"compute_ns": 1000, "tasks": 16, **known, **limits}
    assert problem == drizzle.Problem(**fields)


def test_refusals() -> None:
    with pytest.raises(NotApplicableError, match="what the engine's driver spends") as refused:
        group_size(on_switch(8, 5), 1000)
    assert refused.value.path == "cluster.scheduling"
    with pytest.raises(InvalidInputError) as bad:
        group_size(cluster(), 1000, max_overhead=1)
    assert bad.value.path == "max_overhead"
