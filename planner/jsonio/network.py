"""The JSON form of a network, in all its variants.

A network is a transfer cost (affine, a measured table, or one cost per depth), the NICs of a
cluster, or what ``planner calibrate network`` measured.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.jsonio.decoding import decode, typed
from planner.jsonio.types import (
    Count,
    PositiveRate,
    Rate,
    Rows,
    Time,
    as_dataclass,
    fields_of,
    says,
    unset_to_none,
)
from planner.model.clusters import Nic
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.fitting import Model
from planner.model.measured import MAX_RANKS, Collective, Link, Measured, MeasuredNetwork
from planner.model.network import AnyNetwork
from planner.model.validation import inside

MAX_DEPTH = 64

MODELS: dict[Model, str] = {"table": "network", "affine": "affine", "two_point": "two_point"}
"""Field of a measured network that holds each model of its times."""

Forms = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
"""Required and optional fields of each form of a document."""

_FORMS: Forms = {
    "table": (("table",), ("depths", "interference")),
    "affine": (("startup_ns", "ns_per_byte"), ("depths", "interference")),
    "depths": (("depths",), ("interference",)),
    "nic": (("bytes_per_s", "startup_ns"), ("per_machine", "message_ns", "interference")),
    "measured": (
        ("network", "collective", "ranks"),
        ("algorithm", "affine", "two_point", "timings", "provenance", "interference"),
    ),
    "tables": (("collectives",), ("links", "provenance", "interference")),
}

_MARKS = {
    "collectives": "tables",
    "network": "measured",
    "bytes_per_s": "nic",
    "table": "table",
    "startup_ns": "affine",
    "ns_per_byte": "affine",
    "depths": "depths",
}
"""Field that identifies each form; the first match counts."""


_DEPTH_KEY = r"[1-9]|[1-5][0-9]|6[0-4]"


class CostDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cost of a transfer: a start-up and a time per byte, or a measured table."""

    startup_ns: Time | UnsetType = UNSET
    ns_per_byte: Rate | UnsetType = UNSET
    table: Rows | UnsetType = UNSET


class CostsDocument(CostDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cost of an all-reduce, at depth 1 and, if given, at other depths.

    The cost at depth 1 is given outside `depths` or as one of them.
    """

    depths: Annotated[dict[str, CostDocument], Meta(min_length=1)] | UnsetType = UNSET


class InterferenceDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contention: the processor time a transfer takes from computation, and its own slowdown."""

    startup_ns: Time = 0
    ns_per_byte: Rate | UnsetType = UNSET
    slowdown: Annotated[Rate, Meta(extra_json_schema={"minimum": 1})] | UnsetType = UNSET
    delay_ns: Time = 0

    def typed(self, path: str) -> Interference:
        """Return the typed contention parameters; errors carry `path`."""
        with inside(path):
            return as_dataclass(Interference, self)


class TimingDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The measured times of one size, and the relative error of each model, above 0 if too long."""

    bytes: Count
    depth: Count
    median_ns: Time
    spread_ns: Time
    least_ns: Time
    table_error: float
    affine_error: float
    two_point_error: float | UnsetType = UNSET


# ---
# Measured times of collectives, for several numbers of ranks; a cluster may contain them, too:
# ``{"all_reduce": [{"ranks": 16, "ranks_per_host": 8, "table": [[8, 20000], …]}]}``.

Ranks = Annotated[int, Meta(ge=2, le=MAX_RANKS)]


class TableDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured times of one collective among `ranks` ranks with `ranks_per_host` on each host."""

    ranks: Ranks
    ranks_per_host: Annotated[int, Meta(ge=1, le=MAX_RANKS)] = 1
    table: Rows


Collectives = Annotated[
    dict[Collective, Annotated[tuple[TableDocument, ...], Meta(min_length=1)]],
    Meta(min_length=1, description="by collective, one table for each number of ranks"),
]


class LinkDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The slowest link needed to join the ranks of a host, by its data sheet."""

    ranks: Ranks
    bytes_per_s: PositiveRate


Links = Annotated[
    tuple[LinkDocument, ...],
    says("where a host has several kinds of link, by rising ranks"),
]


class MeasuredDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measurements of a cluster's network, and the source of the numbers."""

    collectives: Collectives
    links: Links | UnsetType = UNSET
    provenance: dict[str, Any] | UnsetType = UNSET

    def typed(self) -> MeasuredNetwork:
        """Return the typed tables; errors carry a path into the document."""
        return _measured(self.collectives, unset_to_none(self.links) or ())


def _measured(collectives: Collectives, links: Iterable[LinkDocument]) -> MeasuredNetwork:
    tables = []
    for collective, documents in collectives.items():
        for place, document in enumerate(documents):
            with inside(f"collectives.{collective}[{place}]"):
                tables.append(
                    Measured(collective, document.ranks, document.ranks_per_host, document.table)
                )
    known = tuple(Link(link.ranks, link.bytes_per_s) for link in links)
    return MeasuredNetwork(tuple(tables), known)


class NetworkDocument(CostsDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network: the cost of transfers; NICs, as a cluster has; or measurements.

    Of the measurements of one collective only `network`, `collective` and `ranks` are needed.
    """

    bytes_per_s: PositiveRate | UnsetType = UNSET
    per_machine: Annotated[int, Meta(ge=1, le=2**10)] | UnsetType = UNSET
    message_ns: Time | UnsetType = UNSET
    network: CostsDocument | UnsetType = UNSET
    collective: Collective | UnsetType = UNSET
    ranks: Ranks | UnsetType = UNSET
    algorithm: str | UnsetType = UNSET
    affine: CostsDocument | UnsetType = UNSET
    two_point: CostsDocument | UnsetType = UNSET
    timings: tuple[TimingDocument, ...] | UnsetType = UNSET
    provenance: dict[str, Any] | UnsetType = UNSET
    collectives: Collectives | UnsetType = UNSET
    links: Links | UnsetType = UNSET
    interference: InterferenceDocument | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class Described:
    """A network and, if it was measured, how."""

    network: AnyNetwork  # cost of a communication, or NICs
    collective: Collective | None = None
    algorithm: str = ""  # that carried out the collective
    ranks: int | None = None
    interference: Interference = NO_CONTENTION
    tables: MeasuredNetwork | None = (
        None  # all measurements; `planner.jsonio.links.resolved` derives `network`
    )
    notes: tuple[str, ...] = ()  # warnings about parts of the cost that were not measured


def decode_network(data: bytes) -> Described:
    """Read a network from JSON text; errors carry a path."""
    return described(typed(decode(data), NetworkDocument), "")


def described(document: NetworkDocument, path: str = "network") -> Described:
    """Return the typed network, measured times as a table; errors carry `path`."""
    with inside(path):
        return _described(document)


def _described(document: NetworkDocument) -> Described:
    given = fields_of(document)
    form = next((name for mark, name in _MARKS.items() if mark in given), "affine")
    needed, optional = _FORMS[form]
    if form in ("nic", "measured", "tables"):
        for field in needed:
            if field not in given:
                raise InvalidInputError(field, f"missing: it comes with {needed[0]}")
    for field in given:
        if field not in (*needed, *optional):
            reason = f"not together with {needed[0]}"
            if form == "affine":
                forms = (form for form in _FORMS.values() if any(field in group for group in form))
                reason = f"needs {next(forms)[0][0]} too"
            raise InvalidInputError(field, reason)
    contention: InterferenceDocument | None = given.pop("interference", None)
    disturbs = NO_CONTENTION if contention is None else contention.typed("interference")
    if form == "tables":
        timed = _measured(given["collectives"], given.get("links", ()))
        return Described(timed.most_ranks.cost, interference=disturbs, tables=timed)
    if form == "measured":
        with inside("network"):
            costs = _costs(given["network"])
        collective, ranks = given["collective"], given["ranks"]
        tables = _one_table(collective, ranks, costs)
        return Described(costs, collective, given.get("algorithm", ""), ranks, disturbs, tables)
    network = Nic(**given) if form == "nic" else _costs(document)
    return Described(network, interference=disturbs)


def measured_as(
    measured: Described, wanted: str | None, path: str = "network", *, contention: bool = False
) -> AnyNetwork:
    """Return the network; raise an error if it was measured for another collective than `wanted`.

    `contention`: whether plans count contention; if not, a network with contention is an error.
    """
    known = measured.collective
    with inside(path):
        if not contention and not measured.interference.is_none:
            what = "only plans of caramel, ibatch and iteration count it: leave it out here"
            raise InvalidInputError("interference", what)
        if measured.tables is not None and known is None:
            raise InvalidInputError("", "expected NICs or links, got measured collectives")
        if wanted is None and known is not None:
            raise InvalidInputError("", "expected NICs or links, got a measured collective")
        if known not in (None, wanted):
            raise InvalidInputError(
                "collective",
                f"expected {wanted}, which is what these plans do, got {known}: measure with "
                f"--collective {wanted}",
            )
    return measured.network


def _one_table(
    collective: Collective, ranks: int, cost: AffineCost | TableCost | DepthCost
) -> MeasuredNetwork | None:
    """Return a calibrated cost as the table of one collective, with one rank per host."""
    if not isinstance(cost, TableCost) or any(time < 1 for _, time in cost.points):
        return None
    return MeasuredNetwork((Measured(collective, ranks, 1, cost.points),))


def _costs(document: CostsDocument) -> AffineCost | TableCost | DepthCost:
    if document.depths is UNSET:
        return _cost(document)
    has_base = len(fields_of(document).keys() & {"startup_ns", "ns_per_byte", "table"}) > 0
    by_depth = {1: _cost(document)} if has_base else {}
    for key, at_depth in document.depths.items():
        with inside(f"depths.{key}"):
            if not re.fullmatch(_DEPTH_KEY, key):
                raise InvalidInputError("", f"expected a depth from 1 to {MAX_DEPTH}")
            cost = _cost(at_depth)
            if has_base and key == "1" and cost != by_depth[1]:
                raise InvalidInputError("", "not the cost given outside depths: give it once")
        by_depth[int(key)] = cost
    if 1 not in by_depth:
        what = "missing: give the cost at depth 1 here or outside depths"
        raise InvalidInputError("depths.1", what)
    return DepthCost(tuple(sorted(by_depth.items(), key=lambda pair: pair[0])))


def _cost(document: CostDocument) -> AffineCost | TableCost:
    """Return one typed cost; errors carry a path into the document."""
    startup, rate = document.startup_ns, document.ns_per_byte
    if document.table is not UNSET:
        for name in ("startup_ns", "ns_per_byte"):
            if getattr(document, name) is not UNSET:
                raise InvalidInputError(name, "not together with table")
        try:
            return TableCost(document.table)
        except InvalidInputError as error:
            where = error.path.replace("cost_table", "table", 1)
            raise InvalidInputError(where, error.message) from None
    if startup is UNSET:
        or_table = "; or give a table" if rate is UNSET else ""
        raise InvalidInputError("startup_ns", f"missing{or_table}")
    if rate is UNSET:
        raise InvalidInputError("ns_per_byte", "missing: it comes with startup_ns")
    return AffineCost(startup, rate)
