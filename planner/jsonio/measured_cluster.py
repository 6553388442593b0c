"""Make a cluster file from the all-reduce times that ``planner calibrate network`` measured.

Problem: a cluster file describes NICs (start-up of a step, bandwidth), but the measurement is of a
whole all-reduce among N ranks. `planner.families.collectives.nics` computes NICs that give this
cost. It takes the line through 64 B and 4 MB, because large transfers decide plans, or else the
affine cost nearest to all sizes.

Guarantee: on this cluster the all-reduce costs what the line says, up to rounding.
Complexity: O(sizes). Source: own.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import msgspec

from planner.families.collectives.nics import nic_of
from planner.jsonio.clusters import ClusterDocument, NicDocument, TopologyDocument
from planner.jsonio.network import InterferenceDocument
from planner.jsonio.types import fields_of
from planner.model.contention import ALONE, Interference
from planner.model.errors import InvalidInputError
from planner.model.fitting import NetworkFit, Sweep, relative_errors
from planner.model.topologies import BCube


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
    """Return a cluster whose all-reduces cost what was measured.

    `cores` are those of a machine, or a rank's share of them. `bcube` is given if BML carried out
    the all-reduces; the ranks are its servers. Raises InvalidInputError if the times are not of an
    all-reduce, or the time does not grow with the size.
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
    """Return a cluster as JSON text, in the layout of the files in ``data/clusters``."""
    fields = {name: value for name, value in fields_of(document).items() if value is not None}
    data = msgspec.json.encode(fields, enc_hook=_number)
    return msgspec.json.format(data, indent=1).decode() + "\n"


def _number(value: Any) -> float:
    if not isinstance(value, Fraction):
        raise NotImplementedError(type(value))  # the error that msgspec expects
    return int(value) if value.denominator == 1 else float(value)
