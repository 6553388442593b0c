"""The files that ``planner calibrate network`` and ``planner import`` write of measured networks.

`encode_network` writes a sweep and its models, `encode_measured` tables of several collectives, and
`cluster_document` a cluster whose all-reduces cost what was measured: a cluster file describes NICs
(start-up of a step, bandwidth), but the measurement is of a whole all-reduce among N ranks.
`planner.families.collectives.prediction` computes NICs that give this cost, up to rounding. It
takes the line through 64 B and 4 MB, because large transfers decide plans, or else the affine cost
nearest to all sizes. `NcclOutput` is what nccl-tests writes of one.
"""

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any, Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType

from planner.families.collectives.prediction import nic_of
from planner.jsonio.clusters import ClusterDocument, NicDocument, TopologyDocument
from planner.jsonio.network import (
    MODELS,
    CostDocument,
    CostsDocument,
    InterferenceDocument,
    LinkDocument,
    MeasuredDocument,
    NetworkDocument,
    TableDocument,
    TimingDocument,
)
from planner.jsonio.types import Size, as_document, laid_out
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.fitting import DepthFit, NetworkFit, Sweep, Timing, relative_errors
from planner.model.measured import MeasuredNetwork
from planner.model.topologies import BCube

C = TypeVar("C", bound=CostDocument)

_Number = float | Literal["nan"]  # a missing number is written as a string


class NcclSide(Struct):
    """One measurement of nccl-tests."""

    time: float | UnsetType = UNSET
    alg_bw: _Number = nan
    bus_bw: _Number = nan
    nwrong: _Number | None = None


class NcclResult(Struct):
    """A row of nccl-tests, of one size."""

    size: Size
    out_of_place: NcclSide | None = None


class NcclOutput(Struct):
    """What nccl-tests writes with ``-J``."""

    results: tuple[NcclResult, ...]
    config: Any = None
    devices: Any = None
    args: Any = None


def encode_measured(network: MeasuredNetwork, provenance: Mapping[str, Any]) -> str:
    """Return a network document as JSON text, one line per table."""
    document = MeasuredDocument(
        collectives={
            collective: tuple(
                TableDocument(ranks=table.ranks, ranks_per_host=table.per_host, table=table.points)
                for table in network.of(collective)
            )
            for collective in network.collectives
        },
        links=tuple(as_document(LinkDocument, link) for link in network.links) or UNSET,
        provenance=dict(provenance),
    )
    return laid_out(document)


def encode_network(
    sweep: Sweep,
    fit: NetworkFit,
    provenance: Mapping[str, Any],
    interference: Interference = NO_CONTENTION,
) -> str:
    """Return a measured network, its models, its provenance and its contention as JSON text."""
    models: dict[str, Any] = {
        name: _costs(cost) for model, name in MODELS.items() if (cost := fit.cost(model))
    }
    document = NetworkDocument(
        collective=sweep.collective,
        algorithm=sweep.algorithm,
        ranks=sweep.ranks,
        **models,
        interference=_beside(interference),
        timings=tuple(
            _timing(timing, by_depth)
            for depth, by_depth in fit.by_depth
            for timing in sweep.at(depth)
        ),
        provenance={
            "kind": "measured",
            "warmup": sweep.warmup,
            "repetitions": sweep.repetitions,
            "statistic": "median of the slowest rank's times; spreads are interquartile ranges",
            **provenance,
        },
    )
    return laid_out(document)


def _costs(cost: AffineCost | TableCost | DepthCost) -> CostsDocument:
    if not isinstance(cost, DepthCost):
        return _cost(CostsDocument, cost)
    by_depth = {str(depth): _cost(CostDocument, own) for depth, own in cost.by_depth}
    return CostsDocument(depths=by_depth)


def _cost(kind: type[C], cost: AffineCost | TableCost) -> C:
    return kind(table=cost.points) if isinstance(cost, TableCost) else as_document(kind, cost)


def _beside(interference: Interference) -> InterferenceDocument | UnsetType:
    return UNSET if interference.is_none else as_document(InterferenceDocument, interference)


def _timing(timing: Timing, fit: DepthFit) -> TimingDocument:
    errors = {
        f"{name}_error": round(relative_errors(cost, [timing])[0], 6)
        for name in MODELS
        if (cost := getattr(fit, name)) is not None
    }
    size, least = timing.size_bytes, min(timing.times_ns)
    return as_document(TimingDocument, timing, bytes=size, least_ns=least, **errors)


def cluster_document(
    sweep: Sweep,
    fit: NetworkFit,
    *,
    name: str,
    source: str,
    cores: int = 1,
    bcube: BCube | None = None,
    interference: Interference = NO_CONTENTION,
    notes: Sequence[str] = (),
) -> ClusterDocument:
    """Return a cluster whose all-reduces cost the measured times.

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
        nic=as_document(NicDocument, nic),
        interference=_beside(interference),
    )
