"""Costs of transfers on a measured network, and notes on the parts that were not measured.

Method: predict each collective from its tables for the cluster's workers
(`planner.families.collectives.prediction`), by the algorithm the library chose.
Guarantee: as measured at a table's points. Complexity: O(tables · sizes) per collective.
Source: own.
"""

from planner.families.collectives.prediction import Predicted, predicted, range_note
from planner.families.iteration.plan import MEASURED, Plan, Synchronisation
from planner.model.clusters import Cluster
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.measured import Collective

KINDS: dict[str, Collective] = {
    "all_reduce": "all_reduce",
    "push": "reduce_scatter",
    "pull": "all_gather",
}
"""The collective of each kind of transfer."""


def measured_on(cluster: Cluster) -> Synchronisation:
    """Return the costs of the measured collectives among a cluster's workers.

    Raises `NotApplicableError` if nothing was measured, or a part of the cluster has failed.
    """
    if cluster.failed:
        raise NotApplicableError("failed", "the network was measured as a whole")
    push, pull, both = (prediction(cluster, kind).cost for kind in ("push", "pull", "all_reduce"))
    return Synchronisation(MEASURED, 2, push, whole=both, gather=None if pull == push else pull)


def notes_of(cluster: Cluster, plan: Plan) -> tuple[str, ...]:
    """Return notes on the parts of a plan's costs that were not measured."""
    if cluster.network is None or cluster.workers == 1 or MEASURED not in plan.algorithms:
        return ()
    notes: list[str] = []
    for kind, name in KINDS.items():
        sizes = [transfer.size_bytes for transfer in plan.transfers if transfer.kind == kind]
        if not sizes:
            continue
        known = prediction(cluster, kind)
        beyond = range_note(known.cost, name, sizes)
        notes += [*known.notes, *([beyond] if beyond else [])]
    return tuple(dict.fromkeys(notes))


def assumed_startups(cluster: Cluster) -> bool:
    """Return whether a cluster's notes say that its start-ups are assumed."""
    return cluster.network is None and any(
        "assumed" in note and "startup_ns" in note for note in cluster.notes
    )


def prediction(cluster: Cluster, kind: str) -> Predicted:
    """Return the predicted cost of a kind of transfer among a cluster's workers.

    Raises `NotApplicableError` if no measured table gives it.
    """
    tables = cluster.network
    if tables is None:
        raise NotApplicableError("network", "the cluster carries no measured tables")
    try:
        return predicted(tables, KINDS[kind], cluster.workers, cluster.workers_per_host)
    except InvalidInputError as error:
        raise NotApplicableError("network", f"{error.path}: {error.message}") from None
