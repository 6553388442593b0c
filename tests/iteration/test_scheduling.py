"""Group sizes of planned iterations, computed by hand and by trying them all."""

from fractions import Fraction
from typing import Any

import pytest

from planner.families import drizzle
from planner.families.iteration.sizing import group_size, scheduling_problem
from planner.model.clusters import Cluster, Nic, Scheduling
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.topologies import Switch
from planner.solving.result import Status


def cluster(**constants: Any) -> Cluster:
    """Eight machines with two tasks each."""
    scheduling = Scheduling(**{"task_ns": 10, "tasks_per_machine": 2, **constants})
    return Cluster("c", "a test", 8, Switch(8), Nic(Fraction(10**9), 5), scheduling=scheduling)


def test_by_hand() -> None:
    # 16 tasks of 10 ns are 160 ns a group. Of 1000 ns at most 1 in 20 may be scheduling: 1000/19 ns
    # beside 1000 ns of computation, so a group needs 160·19/1000 = 3.04 iterations.
    found = group_size(cluster(), 1000)
    assert found.status is Status.OPTIMAL
    assert found.plan == drizzle.Plan(4)
    assert found.objective_ns == 4 * 1000 + 160
    assert group_size(cluster(group_ns=3), 1000, max_overhead=0.5).objective_ns == 1163


@pytest.mark.parametrize("group_ns", [0, 700])
@pytest.mark.parametrize("constant_task_ns", [0, 1, 2])
@pytest.mark.parametrize("max_group_ns", [900, 9_000, None])
def test_the_smallest_of_all_sizes(
    group_ns: int, constant_task_ns: int, max_group_ns: int | None
) -> None:
    engine = cluster(group_ns=group_ns, constant_task_ns=constant_task_ns)
    found = group_size(engine, 500, max_group_ns=max_group_ns)
    able = []
    for size in range(1, 2000):
        scheduling = Fraction(group_ns + 16 * 10, size) + 16 * constant_task_ns
        whole = 500 + scheduling
        if 20 * scheduling <= whole and (max_group_ns is None or size * whole <= max_group_ns):
            able.append(size)
    if able:
        assert found.plan is not None
        assert found.plan.group_size == able[0]
    else:
        assert found.status is Status.INFEASIBLE


@pytest.mark.parametrize(
    ("iteration_ns", "max_group_ns", "constant_task_ns", "binding"),
    [
        (1000, 4159, 0, ("max_overhead", "max_group_ns")),  # a group of 4 takes 4160
        (1000, 1159, 0, ("max_group_ns",)),  # one of 1 takes 1160
        (1000, None, 4, ("max_overhead",)),  # 64 of 1064 are always scheduling
    ],
)
def test_what_binds(
    iteration_ns: int, max_group_ns: int | None, constant_task_ns: int, binding: tuple[str, ...]
) -> None:
    engine = cluster(constant_task_ns=constant_task_ns)
    found = group_size(engine, iteration_ns, max_group_ns=max_group_ns)
    assert found.infeasibility is not None
    assert found.infeasibility.binding == binding
    assert group_size(cluster(), 1000, max_group_ns=4160).plan == drizzle.Plan(4)


def test_limits_by_default() -> None:
    problem = scheduling_problem(cluster(), 1000)
    assert (problem.max_overhead, problem.max_group_ns) == (Fraction(1, 20), 10_000_000_000)
    assert problem.tasks == 16


def test_refusals() -> None:
    plain = Cluster("c", "a test", 8, Switch(8), Nic(Fraction(10**9), 5))
    with pytest.raises(NotApplicableError, match="what the engine's driver spends") as refused:
        group_size(plain, 1000)
    assert refused.value.path == "cluster.scheduling"
    with pytest.raises(InvalidInputError) as bad:
        group_size(cluster(), 1000, max_overhead=1)
    assert bad.value.path == "max_overhead"
