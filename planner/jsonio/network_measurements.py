"""The files that ``planner calibrate network`` and ``planner import`` write of measured networks.

`encode_network` writes a sweep and its models, `encode_measured` tables of several collectives, and
`cluster_document` a cluster whose all-reduces cost what was measured: a cluster file describes NICs
(start-up of a step, bandwidth), but the measurement is of a whole all-reduce among N ranks.
`planner.families.collectives.prediction` computes NICs that give this cost, up to rounding. It
takes the line through 64 B and 4 MB, because large transfers decide plans, or else the affine cost
nearest to all sizes. `NcclOutput` is what nccl-tests writes of one.
"""

import json
from collections.abc import Mapping, Sequence
from math import nan
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from planner.families.collectives.prediction import nic_of
from planner.jsonio.clusters import ClusterDocument, NicDocument, TopologyDocument
from planner.jsonio.layout import number
from planner.jsonio.network import MODELS, InterferenceDocument
from planner.jsonio.types import Size, fields_of, filled
from planner.model.contention import ALONE, Interference
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.fitting import DepthFit, NetworkFit, Sweep, Timing, relative_errors
from planner.model.measured import MeasuredNetwork
from planner.model.topologies import BCube

_SIMPLE = (str, int, float)

_Number = float | Literal["nan"]  # a missing number is written as a string


class NcclSide(Struct):
    """One measurement of nccl-tests: out of place or in place."""

    time: float | UnsetType = UNSET
    alg_bw: _Number = nan
    bus_bw: _Number = nan
    nwrong: _Number | None = None
    cpu_time: Any = None


class NcclResult(Struct):
    """A row of nccl-tests, of one size."""

    size: Size
    out_of_place: NcclSide | None = None
    in_place: NcclSide | None = None


class NcclOutput(Struct):
    """What nccl-tests writes with ``-J``."""

    results: tuple[NcclResult, ...]
    config: Any = None
    devices: Any = None
    args: Any = None


def encode_measured(network: MeasuredNetwork, provenance: Mapping[str, Any]) -> str:
    """Return a network document as JSON text, one line per table."""
    parts = []
    for collective in network.collectives:
        rows = (
            {"ranks": table.ranks, "ranks_per_host": table.per_host, "table": table.points}
            for table in network.of(collective)
        )
        lines = ",\n   ".join(map(json.dumps, rows))
        parts.append(f'  "{collective}": [\n   {lines}\n  ]')
    inner = ",\n".join(parts)
    links = [
        {"ranks": link.ranks, "bytes_per_s": number(link.bytes_per_s)} for link in network.links
    ]
    joined = f' "links": {json.dumps(links)},\n' if links else ""
    origin = json.dumps(dict(provenance), ensure_ascii=False)
    return f'{{\n "collectives": {{\n{inner}\n }},\n{joined} "provenance": {origin}\n}}\n'


def encode_network(
    sweep: Sweep,
    fit: NetworkFit,
    provenance: Mapping[str, Any],
    interference: Interference = ALONE,
) -> str:
    """Return a measured network, its models, its provenance and its contention as JSON text."""
    document: dict[str, Any] = {
        "collective": sweep.collective,
        "algorithm": sweep.algorithm,
        "ranks": sweep.ranks,
    }
    for model, name in MODELS.items():
        cost = fit.cost(model)
        if cost is not None:
            document[name] = _network(cost)
    if not interference.is_none:
        document["interference"] = msgspec.to_builtins(interference, enc_hook=float)
    document["timings"] = [
        _timing(timing, by_depth) for depth, by_depth in fit.by_depth for timing in sweep.at(depth)
    ]
    document["provenance"] = {
        "kind": "measured",
        "warmup": sweep.warmup,
        "repetitions": sweep.repetitions,
        "statistic": "median of the slowest rank's times; spreads are interquartile ranges",
        **provenance,
    }
    return _laid_out(document, "") + "\n"


def _network(cost: AffineCost | TableCost | DepthCost) -> dict[str, Any]:
    if isinstance(cost, TableCost):
        return {"table": [list(point) for point in cost.points]}
    if isinstance(cost, AffineCost):
        return {"startup_ns": cost.startup_ns, "ns_per_byte": float(cost.ns_per_byte)}
    return {"depths": {str(depth): _network(at_depth) for depth, at_depth in cost.by_depth}}


def _timing(timing: Timing, fit: DepthFit) -> dict[str, Any]:
    errors = {
        f"{name}_error": round(relative_errors(cost, [timing])[0], 6)
        for name in MODELS
        if (cost := getattr(fit, name)) is not None
    }
    return {
        "bytes": timing.size_bytes,
        "depth": timing.depth,
        "median_ns": timing.median_ns,
        "spread_ns": timing.spread_ns,
        "least_ns": min(timing.times_ns),
        **errors,
    }


def _laid_out(value: Any, indent: str) -> str:
    """Return JSON text with a line for each field, and for each row of a table."""
    inner = indent + " "
    if isinstance(value, Mapping) and not all(
        isinstance(field, _SIMPLE) for field in value.values()
    ):
        rows = [f"{json.dumps(key)}: {_laid_out(field, inner)}" for key, field in value.items()]
        opening, closing = "{}"
    elif isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
        rows = [json.dumps(row, ensure_ascii=False) for row in value]
        opening, closing = "[]"
    else:
        return json.dumps(value, ensure_ascii=False)
    lines = ",\n".join(inner + row for row in rows)
    return f"{opening}\n{lines}\n{indent}{closing}"


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
        nic=filled(NicDocument, nic),
        interference=msgspec.UNSET
        if interference.is_none
        else filled(InterferenceDocument, interference),
    )


def encode_cluster(document: ClusterDocument) -> str:
    """Return a cluster as JSON text, in the layout of the files in ``data/clusters``."""
    fields = {name: value for name, value in fields_of(document).items() if value is not None}
    data = msgspec.json.encode(fields, enc_hook=number)
    return msgspec.json.format(data, indent=1).decode() + "\n"
