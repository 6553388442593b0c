"""A cluster file made of what ``planner calibrate network`` timed.

Problem. A cluster has NICs: what a step starts with, and what they carry. Timed is an all-reduce as
a whole, among N ranks.

Method. The NICs on which the all-reduce costs that (`planner.collectives.nics`). The line through
64 B and 4 MB is taken, since what large transfers take decides plans; the affine cost nearest to
all sizes where that is missing.

Guarantee. On this cluster the same all-reduce costs what the line says, but for rounding.

Complexity. O(sizes).

Source. Own.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import msgspec

from planner.collectives.nics import nic_of
from planner.errors import InvalidInputError
from planner.interference import ALONE, Interference
from planner.jsonio.clusters import ClusterDocument, NicDocument, TopologyDocument
from planner.jsonio.network import InterferenceDocument
from planner.jsonio.types import fields_of
from planner.sweeps import NetworkFit, Sweep, relative_errors
from planner.topologies import BCube

__all__ = ["cluster_document", "encode_cluster"]


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
