"""The NIC on which a ring (or BML) would cost what a collective was measured at.

Problem: collectives are measured as a whole, among N ranks. Yan's model, BML and slices on Spark
send single messages and need NICs.
Method: a ring takes N-1 steps per half and carries (N-1)/N bytes per byte. BML on BCube(n, k)
takes 2k steps of n-1 messages (further messages count as start-up) and carries 2(N-1)/(kN) over
each NIC. Tables are first fitted by an affine cost.
Guarantee: a ring on this NIC costs what the affine cost says, up to rounding.
Complexity: O(sizes). Source: own; the inverse of `planner.families.iteration.synchronisation`.
"""

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from planner.families.collectives.prediction import predicted
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost
from planner.model.errors import InvalidInputError
from planner.model.fitting import fit_affine
from planner.model.measured import Collective, MeasuredNetwork
from planner.model.topologies import BCube, Rails
from planner.model.units import format_ns, format_rate

FIRST: tuple[Collective, ...] = ("all_gather", "reduce_scatter", "all_reduce")
"""Collectives in order of preference: the time of a half says most about single messages."""


def nic_of(cost: AffineCost, ranks: int, bcube: BCube | None = None, halves: int = 2) -> Nic:
    """Return the NICs on which a collective would have the given affine cost.

    `halves` is 2 for an all-reduce and 1 for an all-gather or reduce-scatter. With a `bcube`, BML
    is assumed, else a ring over one NIC per machine. A cost without a slope is an
    `InvalidInputError`.
    """
    if not cost.ns_per_byte:
        raise InvalidInputError("ns_per_byte", "expected above 0: time larger transfers")
    nics, steps = (1, ranks - 1) if bcube is None else (bcube.k, bcube.k)
    carried = Fraction(halves * (ranks - 1), nics * ranks)
    return Nic(
        bytes_per_s=Fraction(round(10**9 * carried / cost.ns_per_byte)) or Fraction(1),
        startup_ns=round(Fraction(cost.startup_ns, halves * steps)),
        per_machine=nics,
    )


@lru_cache(maxsize=64)
def measured_nic(
    network: MeasuredNetwork, ranks: int, per_host: int
) -> tuple[Nic, tuple[str, ...]]:
    """Return the NIC of each rank, and notes on assumptions."""
    collective = next(name for name in FIRST if name in network.collectives)
    known = predicted(network, collective, ranks, per_host)
    fit = fit_affine(known.cost.points)
    nic = nic_of(fit.cost, ranks, halves=2 if collective == "all_reduce" else 1)
    note = (
        f"a NIC's start-up, {format_ns(nic.startup_ns)}, and its {format_rate(nic.bytes_per_s)} "
        f"are those on which a ring's {collective} among {ranks} ranks costs what was measured "
        f"(affine: {fit.median_relative_error:.0%} off in the median, "
        f"{fit.largest_relative_error:.0%} at most)"
    )
    return nic, (*known.notes, note)


def with_measured_nics(cluster: Cluster) -> tuple[Cluster, tuple[str, ...]]:
    """Return the cluster with NICs fitted to its measured network, and notes on assumptions.

    A cluster with failures keeps its NICs.
    """
    if cluster.network is None or cluster.failed or cluster.workers == 1:
        return cluster, ()
    nic, notes = measured_nic(cluster.network, cluster.workers, cluster.workers_per_host)
    levels = 1 if isinstance(cluster.topology, Rails) else cluster.nic.per_machine
    alone = replace(
        cluster.nic,
        bytes_per_s=nic.bytes_per_s / levels,
        startup_ns=nic.startup_ns,
        message_ns=0,
    )
    return replace(cluster, nic=alone), notes
