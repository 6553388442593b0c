"""How sure the numbers of a plan are: what they were measured on, and how far that is off.

Problem: a plan's iteration is made of computation, from a profile, and of transfers, priced by a
network. Whoever reads it wants to know how far each is to be trusted.

Method: computation was measured, or not; the spread of its times is known. Of a kind of transfer
the tables say what was measured among just these ranks, or whether it lies between or beyond them;
how far such a prediction is off is estimated on the same network, by leaving out what was measured
(`planner.collectives.held_out`): sizes, numbers of ranks between others, or the larger ones.

Guarantee: none: estimates. What is not known is None.

Complexity: that of leaving out, once a kind of transfer. Source: own.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from planner.clusters import Cluster
from planner.collectives.held_out import LARGE, left_out_like, summary
from planner.collectives.predicted import Basis
from planner.graphs import Graph
from planner.iteration.measured import KINDS, prediction
from planner.iteration.plan import Plan
from planner.iteration.ways import MEASURED
from planner.measured import Collective, MeasuredNetwork
from planner.profiles import Profile

__all__ = ["Certainty", "Grounds", "certainties"]

Grounds = Literal[
    "measured", "imported", "synthetic", "interpolated", "extrapolated", "taken for another",
    "assumed",
]  # fmt: skip
"""What a number rests on."""


Number = Literal["computation", "all_reduce", "push", "pull"]


@dataclass(frozen=True, slots=True)
class Certainty:
    """How sure a number is.

    Attributes
    ----------
    number : {"computation", "all_reduce", "push", "pull"}
        Which: the computation, or what transfers of a kind take.
    grounds : str
        What it rests on.
    error, largest : float or None
        Of computation the interquartile range over the median, were all ops late at once, and
        None; of transfers the mean and the largest relative error of what was left out.
    """

    number: Number
    grounds: Grounds
    error: float | None = None
    largest: float | None = None


def certainties(
    profile: Profile, graph: Graph, cluster: Cluster, plan: Plan
) -> tuple[Certainty, ...]:
    """Return how sure the computation is, and each kind of transfer of a plan.

    Parameters
    ----------
    profile, graph : Profile, Graph
        The model, and its ops as planned.
    cluster : Cluster
        Where it runs.
    plan : Plan
        The plan.
    """
    spreads = [op.spread_ns for op in graph.ops if op.spread_ns is not None]
    total = sum(op.duration_ns for op in graph.ops)
    spread = sum(spreads) / total if spreads and total else None
    kinds: tuple[Number, ...] = ("all_reduce", "push", "pull")
    used = {transfer.kind for transfer in plan.transfers}
    return (
        Certainty("computation", profile.provenance.kind, spread),
        *(_transfers(cluster, plan, kind) for kind in kinds if kind in used),
    )


def _transfers(cluster: Cluster, plan: Plan, kind: Number) -> Certainty:
    if cluster.network is None or MEASURED not in plan.algorithms:
        return Certainty(kind, "assumed")
    found = prediction(cluster, kind)
    mean, largest = _errors(
        cluster.network, KINDS[kind], found.basis, cluster.workers, cluster.workers_per_host
    )
    return Certainty(kind, found.basis, mean, largest)


@lru_cache(maxsize=64)
def _errors(
    network: MeasuredNetwork, collective: Collective, basis: Basis, ranks: int, per_host: int
) -> tuple[float | None, float | None]:
    """Return the mean and the largest error of what was left out like that."""
    held_out = list(left_out_like(network, collective, basis, ranks, per_host))
    known = summary(held_out, LARGE) or summary(held_out, 0)
    return (None, None) if known is None else known[1:]
