"""The same job with fewer or more workers.

Guarantee: only the number of workers changes, on a cluster of the same kind; an error says if the
topology does not allow that number.
Complexity: O(1), and that of checking a problem.
Source: own.
"""

from dataclasses import replace

from planner.families.iteration.problem import Problem
from planner.model.clusters import Cluster
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube, Rails, Switch
from planner.model.validation import integer


def resized(problem: Problem, workers: int) -> Problem:
    """Return the problem of the same model and kind of cluster, with `workers` workers.

    Parameters
    ----------
    problem : Problem
        The problem.
    workers : int
        New number of workers: machines, or accelerators of whole hosts.

    Raises
    ------
    InvalidInputError
        If the topology has no such number of workers.
    """
    integer(workers, "workers", minimum=1)
    if problem.cluster.workers == workers:
        return problem
    return replace(problem, cluster=_with_workers(problem.cluster, workers))


def _with_workers(cluster: Cluster, workers: int) -> Cluster:
    topology, machines = cluster.topology, workers
    if isinstance(topology, BCube):
        raise InvalidInputError(
            "cluster.topology",
            f"a bcube of {topology.servers} servers has no place for {workers} workers: say which "
            "have failed, or plan for another cluster",
        )
    if isinstance(topology, Rails):
        machines, rest = divmod(workers, topology.accelerators)
        if rest:
            raise InvalidInputError(
                "workers", f"expected whole hosts of {topology.accelerators}, got {workers}"
            )
        topology = replace(topology, hosts=machines)
    elif isinstance(topology, Switch):
        topology = Switch(workers)
    return replace(cluster, machines=machines, topology=topology)
