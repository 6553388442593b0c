"""The same job with other numbers of workers."""

from fractions import Fraction

import pytest

from planner import Layer, Profile, Provenance
from planner.families import iteration
from planner.families.iteration.resizing import resized
from planner.model.clusters import Cluster, Nic
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube, FatTree, Rails, Switch, Topology


def problem_on(topology: Topology, machines: int, nics: int = 1) -> iteration.Problem:
    layers = tuple(
        Layer(f"l{place}", forward_ns=1000, backward_ns=2000, parameter_bytes=4000)
        for place in range(3)
    )
    profile = Profile("m", layers, Provenance("synthetic", "a test"))
    nic = Nic(Fraction(10**9), 1000, nics)
    return iteration.Problem.from_profile(profile, Cluster("c", "a test", machines, topology, nic))


@pytest.mark.parametrize(
    ("problem", "workers", "topology"),
    [
        (problem_on(Switch(4), 4), 2, Switch(2)),
        (problem_on(Switch(2), 2), 5, Switch(5)),
        (problem_on(FatTree(4), 3), 16, FatTree(4)),
        (problem_on(Rails(2, 4, Fraction(10**10)), 2, 4), 12, Rails(3, 4, Fraction(10**10))),
    ],
)
def test_the_cluster_gets_as_many_workers(
    problem: iteration.Problem, workers: int, topology: Topology
) -> None:
    """It is then that of a problem made for so many, and has a plan."""
    other = resized(problem, workers)
    assert other.cluster.topology == topology
    machines = topology.hosts if isinstance(topology, Rails) else workers
    assert other == problem_on(topology, machines, problem.cluster.nic.per_machine)
    assert resized(other, problem.cluster.workers) == problem
    assert iteration.solve(other).plan is not None


@pytest.mark.parametrize(
    ("problem", "workers", "path"),
    [
        (problem_on(BCube(2, 2), 4, 2), 3, "cluster.topology"),
        (problem_on(Rails(2, 4, Fraction(10**10)), 2, 4), 6, "workers"),
        (problem_on(FatTree(2), 2), 3, "machines"),
        (problem_on(Switch(2), 2), 0, "workers"),
    ],
)
def test_what_a_topology_does_not_allow_is_refused(
    problem: iteration.Problem, workers: int, path: str
) -> None:
    with pytest.raises(InvalidInputError) as error:
        resized(problem, workers)
    assert error.value.path == path


def test_as_many_as_there_are_change_nothing() -> None:
    problem = problem_on(BCube(2, 2), 4, 2)
    assert resized(problem, 4) is problem
