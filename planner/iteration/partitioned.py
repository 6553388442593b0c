"""How a job would be spread over a cluster with parameter servers and cut models.

Problem: beside all-reduces and shards, which `planner.iteration` plans: which machines are
parameter servers, how many workers has a replica, how are its layers cut and copied?

Method: Yan's search (`planner.yan`) on the profile's layers and the cluster's network
(`planner.yan.profiled`). Its model overlaps nothing and is no plan that is run here: it says
whether to look further.

Guarantee: that of `planner.yan`'s method, in its model; or why there is none.

Complexity: that of the search, at most `SECONDS` if nobody says otherwise. Source: Yan et al.,
KDD'15.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from planner import yan
from planner.clusters import Cluster
from planner.deadline import Cancel
from planner.errors import InvalidInputError
from planner.profiles import Profile
from planner.results import Result
from planner.yan.profiled import ProfiledProblem, profiled

__all__ = ["Partitioned", "partitioned"]

SECONDS = 10.0
"""Time limit of the search, if nobody says otherwise."""


class Partitioned(NamedTuple):
    """What the search found.

    Attributes
    ----------
    made : ProfiledProblem or None
        The problem; None if the profile or the cluster makes none.
    result : Result or None
        Its configuration.
    reason : str
        Why there is none.
    """

    made: ProfiledProblem | None
    result: Result[yan.Plan, yan.Estimate] | None
    reason: str = ""


def partitioned(
    profile: Profile,
    cluster: Cluster,
    epoch_samples: int,
    options: Mapping[str, Any],
    time_limit: float | None = None,
    cancel: Cancel | None = None,
) -> Partitioned:
    """Search for servers, replicas, partitions and copies.

    Parameters
    ----------
    profile, cluster : Profile, Cluster
        The model, and where it may run.
    epoch_samples : int
        Samples of an epoch.
    options : mapping
        What `Problem.from_profile` is told; of it `computation` and `ignore_memory` matter.
    time_limit : float, optional
        Seconds.
    cancel : Cancel, optional
        Ends the search.
    """
    memory: dict[str, Any] = {"memory_bytes": None} if options.get("ignore_memory") else {}
    try:
        made = profiled(
            profile, cluster, epoch_samples, computation=options.get("computation", 1), **memory
        )
        result = yan.solve(made.problem, time_limit=time_limit or SECONDS, cancel=cancel)
    except InvalidInputError as error:
        return Partitioned(None, None, str(error))
    if result.infeasibility is not None:
        return Partitioned(made, None, result.infeasibility.reason)
    return Partitioned(made, result)
