"""What collectives cost on a cluster whose network was measured.

Problem: a cluster carries tables of what its collectives took. What does a transfer cost there, and
what of that was not measured?

Method: an all-reduce, a push (reduce-scatter) and a pull (all-gather) cost what each one's own
table says for the cluster's workers (`planner.collectives.predicted`). Which algorithm carries them
out was the choice of the library that was timed.

Guarantee: costs never fall with the size. `least_rates` is below every transfer's time per byte.

Complexity: that of the predictions, once a cluster. Source: own.
"""

from fractions import Fraction

from planner.clusters import Cluster
from planner.collectives.predicted import Predicted, predicted, range_note
from planner.costs import least_rate
from planner.errors import InvalidInputError, NotApplicableError
from planner.iteration.plan import Plan
from planner.iteration.ways import MEASURED, Synchronisation
from planner.measured import Collective
from planner.validation import MAX_VALUE

__all__ = [
    "KINDS",
    "assumed_startups",
    "least_rates",
    "measured_on",
    "notes_of",
    "prediction",
]

KINDS: dict[str, Collective] = {
    "all_reduce": "all_reduce",
    "push": "reduce_scatter",
    "pull": "all_gather",
}
"""The collective that each kind of transfer is."""


def measured_on(cluster: Cluster) -> Synchronisation:
    """Return what the measured collectives cost among a cluster's workers.

    Raises
    ------
    NotApplicableError
        If nothing was measured, or something of the cluster has failed.
    """
    if cluster.failed:
        raise NotApplicableError("failed", "the network was measured as a whole")
    push, pull, both = (prediction(cluster, kind).cost for kind in ("push", "pull", "all_reduce"))
    return Synchronisation(MEASURED, 2, push, whole=both, gather=None if pull == push else pull)


def least_rates(cluster: Cluster) -> tuple[Fraction, Fraction]:
    """Return the least ns a byte of a half, and of an all-reduce, of any size."""
    push, pull, both = (
        least_rate(prediction(cluster, kind).cost, MAX_VALUE)
        for kind in ("push", "pull", "all_reduce")
    )
    return min(push, pull), both


def notes_of(cluster: Cluster, plan: Plan) -> tuple[str, ...]:
    """Return what of a plan's costs was not measured, where the network was.

    Parameters
    ----------
    cluster : Cluster
        Where the plan runs.
    plan : Plan
        The plan.
    """
    if cluster.network is None or cluster.workers == 1 or MEASURED not in plan.algorithms:
        return ()
    notes: list[str] = []
    for kind, collective in KINDS.items():
        sizes = [transfer.size_bytes for transfer in plan.transfers if transfer.kind == kind]
        if not sizes:
            continue
        known = prediction(cluster, kind)
        beyond = range_note(known.cost, collective, sizes)
        notes += [*known.notes, *([beyond] if beyond else [])]
    return tuple(dict.fromkeys(notes))


def assumed_startups(cluster: Cluster) -> bool:
    """Return whether a cluster says itself that its start-ups are assumed."""
    return cluster.network is None and any(
        "assumed" in note and "startup_ns" in note for note in cluster.notes
    )


def prediction(cluster: Cluster, kind: str) -> Predicted:
    """Return what a kind of transfer costs among a cluster's workers.

    Raises
    ------
    NotApplicableError
        If nothing was measured that says so.
    """
    tables = cluster.network
    if tables is None:
        raise NotApplicableError("network", "the cluster carries no measured tables")
    try:
        return predicted(tables, KINDS[kind], cluster.workers, cluster.workers_per_host)
    except InvalidInputError as error:
        raise NotApplicableError("network", f"{error.path}: {error.message}") from None
