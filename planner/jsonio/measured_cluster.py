"""A cluster file made of what ``planner calibrate network`` timed.

Problem. A cluster has NICs: what a step starts with, and what they carry. Timed is an all-reduce as
a whole, among N ranks.

Method. The inverse of what an all-reduce costs on a cluster: a ring takes 2(N-1) steps and carries
2(N-1)/N bytes for each byte summed up; BML on a BCube(n, k) takes 2k steps of (n-1) messages each,
whose further ones count as part of the start-up, and carries 2(N-1)/(kN) over each of k NICs. The
line through 64 B and 4 MB is taken, since what large transfers take decides plans; the affine cost
nearest to all sizes where that is missing.

Guarantee. On this cluster the same all-reduce costs what the line says, but for rounding.

Complexity. O(sizes).

Source. `planner.iteration.synchronisation`, backwards.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import msgspec

from planner.clusters import Nic
from planner.costs import AffineCost
from planner.errors import InvalidInputError
from planner.interference import ALONE, Interference
from planner.jsonio.clusters import ClusterDocument, NicDocument, TopologyDocument
from planner.jsonio.network import InterferenceDocument
from planner.jsonio.types import fields_of
from planner.sweeps import NetworkFit, Sweep, relative_errors
from planner.topologies import BCube

__all__ = ["cluster_document", "encode_cluster", "nic_of"]


def nic_of(cost: AffineCost, ranks: int, bcube: BCube | None = None) -> Nic:
    """Return the NICs over which an all-reduce costs so much.

    Parameters
    ----------
    cost : AffineCost
        What it costs, as a whole.
    ranks : int
        Among how many machines, one rank on each; at least 2.
    bcube : BCube, optional
        Whose servers they are, if BML summed up; else a ring did, over one NIC a machine.

    Raises
    ------
    InvalidInputError
        If more bytes cost no more time.
    """
    if not cost.ns_per_byte:
        raise InvalidInputError("ns_per_byte", "expected above 0: time larger transfers")
    nics, steps = (1, 2 * (ranks - 1)) if bcube is None else (bcube.k, 2 * bcube.k)
    carried = Fraction(2 * (ranks - 1), nics * ranks)
    return Nic(
        bytes_per_s=Fraction(round(10**9 * carried / cost.ns_per_byte)) or Fraction(1),
        startup_ns=round(Fraction(cost.startup_ns, steps)),
        per_machine=nics,
    )


def cluster_document(
    sweep: Sweep,
    fit: NetworkFit,
    *,
    name: str,
    source: str,
    cores: int = 1,
    bcube: BCube | None = None,
    interference: Interference = ALONE,
    notes: Sequence[str] = (),
) -> ClusterDocument:
    """Return the cluster on which all-reduces cost what was measured.

    Parameters
    ----------
    sweep, fit : Sweep, NetworkFit
        What was timed, of all-reduces, and its models.
    name, source : str
        Of the cluster, and how it was measured.
    cores : int
        Of a machine, or a rank's share of it.
    bcube : BCube, optional
        Whose servers the ranks are, if BML summed up.
    interference : Interference
        What transfers and computation take from each other.
    notes : sequence of str
        What else a reader should know.

    Raises
    ------
    InvalidInputError
        If the times are not those of an all-reduce, or more bytes cost no more time.
    """
    if sweep.collective != "all_reduce":
        raise InvalidInputError("collective", f"expected all_reduce, got {sweep.collective}")
    fitted = dict(fit.by_depth)[min(sweep.depths)]
    line, model = fitted.two_point, "the line through 64 B and 4 MB"
    if line is None or not line.ns_per_byte:
        line, model = fitted.affine, "the affine cost nearest to all sizes"
    errors = [abs(error) for error in relative_errors(line, sweep.at(min(sweep.depths)))]
    off = f"off by {sum(errors) / len(errors):.0%} in the mean, {max(errors):.0%} at most"
    nic = nic_of(line, sweep.ranks, bcube)
    return ClusterDocument(
        name=name,
        source=source,
        notes=(f"nic is what {model} says of the measured times, {off}", *notes),
        machines=sweep.ranks,
        cores=cores,
        topology=TopologyDocument(kind="switch")
        if bcube is None
        else TopologyDocument(kind="bcube", n=bcube.n, k=bcube.k),
        nic=NicDocument(
            bytes_per_s=nic.bytes_per_s, startup_ns=nic.startup_ns, per_machine=nic.per_machine
        ),
        interference=msgspec.UNSET
        if interference.is_none
        else InterferenceDocument(
            startup_ns=interference.startup_ns,
            ns_per_byte=interference.ns_per_byte,
            slowdown=interference.slowdown,
            delay_ns=interference.delay_ns,
        ),
    )


def encode_cluster(document: ClusterDocument) -> str:
    """Return a cluster as JSON text, as the files in ``data/clusters`` are written."""
    fields = {name: value for name, value in fields_of(document).items() if value is not None}
    data = msgspec.json.encode(fields, enc_hook=_number)
    return msgspec.json.format(data, indent=1).decode() + "\n"


def _number(value: Any) -> float:
    if not isinstance(value, Fraction):
        raise NotImplementedError(type(value))  # as msgspec asks for
    return int(value) if value.denominator == 1 else float(value)
