"""The NICs over which a collective takes what was measured: for models of messages between two.

Problem. What was timed is a collective as a whole, among N ranks. Yan's model, BML's schedules and
slices on Spark send messages of their own: they ask for NICs.

Method. The inverse of what a collective costs: a ring takes N-1 steps a half and carries (N-1)/N
bytes for each byte; BML on a BCube(n, k) takes 2k steps of (n-1) messages each, whose further ones
count as part of the start-up, and carries 2(N-1)/(kN) over each of k NICs. Of tables the affine
cost nearest to all sizes is taken, of an all-gather if it was timed, else a reduce-scatter, else an
all-reduce.

Guarantee. By a ring on these NICs it costs what that affine cost says, but for rounding.

Complexity. O(sizes). Source. `planner.iteration.synchronisation`, backwards.
"""

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from planner.clusters import Cluster, Nic
from planner.collectives.predicted import predicted
from planner.costs import AffineCost, fit_affine
from planner.errors import InvalidInputError
from planner.measured import Collective, MeasuredNetwork
from planner.topologies import BCube, Rails
from planner.units import format_ns, format_rate

__all__ = ["measured_nic", "nic_of", "with_measured_nics"]

FIRST: tuple[Collective, ...] = ("all_gather", "reduce_scatter", "all_reduce")
"""Which is taken: what a half takes says most of single messages."""


def nic_of(cost: AffineCost, ranks: int, bcube: BCube | None = None, halves: int = 2) -> Nic:
    """Return the NICs over which a collective costs so much.

    Parameters
    ----------
    cost : AffineCost
        What it costs, as a whole.
    ranks : int
        Among how many machines, one rank on each; at least 2.
    bcube : BCube, optional
        Whose servers they are, if BML summed up; else a ring did, over one NIC a machine.
    halves : int
        2 of an all-reduce, 1 of an all-gather or a reduce-scatter.

    Raises
    ------
    InvalidInputError
        If more bytes cost no more time.
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
    """Return a NIC of each rank, and what of it was not measured.

    Parameters
    ----------
    network : MeasuredNetwork
        What was measured.
    ranks, per_host : int
        Among how many ranks, so many a host.

    Raises
    ------
    InvalidInputError
        If the tables say nothing of such ranks.
    """
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
    """Return a cluster with NICs as measured, if it was, and what of them was not.

    Parameters
    ----------
    cluster : Cluster
        Where something of it has failed its NICs stay as they are.
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
