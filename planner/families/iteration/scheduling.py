"""Group size: the number of iterations that an engine such as Spark schedules at once.

Problem: the engine's driver schedules every task of every iteration, which adds to the planned
iterations. Method: Drizzle's group size (`planner.drizzle`), with a whole planned iteration,
communication included, as the computation time, and the tasks of all machines. Guarantee: the
smallest group that keeps both limits, or the limits that bind. Complexity: O(1). Source:
Venkataraman, Ding, Ermolin, "Accelerating Deep Learning Training with BigDL and Drizzle on Apache
Spark".
"""

from collections.abc import Mapping
from typing import Any

from planner.families import bigdl, drizzle
from planner.families.drizzle.problem import MAX_GROUP_NS, MAX_OVERHEAD
from planner.model.clusters import Cluster
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.profiles import Profile
from planner.solving.compare import Place
from planner.solving.result import Result


def scheduling_problem(cluster: Cluster, iteration_ns: int, **limits: Any) -> drizzle.Problem:
    """Return the problem of the group size of iterations, which last so long unscheduled."""
    scheduling = cluster.scheduling
    if scheduling is None:
        raise NotApplicableError(
            "cluster.scheduling", "missing: what the engine's driver spends on tasks and groups"
        )
    return drizzle.Problem(
        compute_ns=iteration_ns,
        tasks=cluster.working * scheduling.tasks_per_machine,
        group_ns=scheduling.group_ns,
        task_ns=scheduling.task_ns,
        constant_task_ns=scheduling.constant_task_ns,
        **{"max_overhead": MAX_OVERHEAD, "max_group_ns": MAX_GROUP_NS, **limits},
    )


def from_profile(profile: Profile, place: Place, options: Mapping[str, Any]) -> drizzle.Problem:
    """Return the problem of iterations that compute, and then synchronise by slices."""
    cluster = place.cluster
    assert cluster is not None
    if cluster.scheduling is None:
        raise InvalidInputError(
            "--cluster",
            f"{cluster.name} does not say what its engine's driver spends on tasks; drizzle-64 "
            "does",
        )
    sliced = bigdl.BIGDL.from_profile(profile, place, {"machines": cluster.workers, "tasks": None})
    iteration_ns = profile.forward_ns + profile.backward_ns
    iteration_ns += bigdl.solve(sliced).objective_ns or 0
    limits = {"max_overhead": options["max_overhead"], "max_group_ns": options["max_group"]}
    return scheduling_problem(cluster, iteration_ns, **limits)


def group_size(
    cluster: Cluster, iteration_ns: int, **limits: Any
) -> Result[drizzle.Plan, drizzle.Evaluation]:
    """Choose how many planned iterations the driver schedules at once.

    Parameters
    ----------
    cluster : Cluster
        A cluster whose engine schedules iterations.
    iteration_ns : int
        Time of one iteration without scheduling.
    **limits
        `max_overhead`: largest share of scheduling in the time of an iteration, above 0 and below
        1. `max_group_ns`: longest time of a group; None for no limit.

    Raises
    ------
    NotApplicableError
        If the cluster has no scheduling costs.
    InvalidInputError
        If an input is invalid, or the time of the group does not fit in 63 bits; its path leads to
        a limit, or into the cluster's document.
    """
    try:
        return drizzle.solve(scheduling_problem(cluster, iteration_ns, **limits))
    except NotApplicableError:
        raise
    except InvalidInputError as error:
        place = "" if error.path in limits else "cluster.scheduling."
        raise InvalidInputError(f"{place}{error.path}", error.message) from None
