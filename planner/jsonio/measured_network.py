"""The JSON form of measured collective times, for several numbers of ranks.

``{"collectives": {"all_reduce": [{"ranks": 16, "ranks_per_host": 8, "table": [[8, 20000], …]}]}}``:
`planner import` writes it from other tools' tables, and a cluster file may contain it.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.jsonio.layout import number
from planner.jsonio.types import PositiveRate, Rows
from planner.model.errors import InvalidInputError
from planner.model.measured import MAX_RANKS, Collective, Link, Measured, MeasuredNetwork
from planner.model.validation import inside

Ranks = Annotated[int, Meta(ge=2, le=MAX_RANKS)]


class TableDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The times of one collective among so many ranks, so many a host."""

    ranks: Ranks
    ranks_per_host: Annotated[int, Meta(ge=1, le=MAX_RANKS)] = 1
    table: Rows


Collectives = Annotated[
    dict[Collective, Annotated[tuple[TableDocument, ...], Meta(min_length=1)]],
    Meta(min_length=1, description="by collective, one table for each number of ranks"),
]


class LinkDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The slowest link that is needed to join so many ranks of a host, by its data sheet."""

    ranks: Ranks
    bytes_per_s: PositiveRate


Links = Annotated[
    tuple[LinkDocument, ...],
    Meta(description="where a host has several kinds of link, by rising ranks"),
]


class MeasuredDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured of a cluster's network, and where the numbers come from."""

    collectives: Collectives
    links: Links | UnsetType = UNSET
    provenance: dict[str, Any] | UnsetType = UNSET


def measured_of(
    collectives: Mapping[Collective, tuple[TableDocument, ...]],
    links: tuple[LinkDocument, ...] | UnsetType = UNSET,
) -> MeasuredNetwork:
    """Return the typed tables; errors carry a path into the document."""
    tables = []
    for collective, documents in collectives.items():
        for place, document in enumerate(documents):
            with inside(f"collectives.{collective}[{place}]"):
                tables.append(
                    Measured(collective, document.ranks, document.ranks_per_host, document.table)
                )
    if not tables:
        raise InvalidInputError("collectives", "expected at least one table, got none")
    known = () if links is UNSET else links
    return MeasuredNetwork(
        tuple(tables), tuple(Link(link.ranks, link.bytes_per_s) for link in known)
    )


def collectives_of(network: MeasuredNetwork) -> dict[str, list[dict[str, Any]]]:
    """Return the JSON form of all tables."""
    return {
        collective: [
            {
                "ranks": table.ranks,
                "ranks_per_host": table.per_host,
                "table": [list(point) for point in table.points],
            }
            for table in network.of(collective)
        ]
        for collective in network.collectives
    }


def link_rows(network: MeasuredNetwork) -> list[dict[str, Any]]:
    """Return the JSON form of the links."""
    return [
        {"ranks": link.ranks, "bytes_per_s": number(link.bytes_per_s)} for link in network.links
    ]


def encode_measured(network: MeasuredNetwork, provenance: Mapping[str, Any]) -> str:
    """Return a network document as JSON text, one line per table."""
    parts = []
    for collective, tables in collectives_of(network).items():
        lines = ",\n   ".join(json.dumps(table) for table in tables)
        parts.append(f'  "{collective}": [\n   {lines}\n  ]')
    inner = ",\n".join(parts)
    links = f' "links": {json.dumps(link_rows(network))},\n' if network.links else ""
    origin = json.dumps(dict(provenance), ensure_ascii=False)
    return f'{{\n "collectives": {{\n{inner}\n }},\n{links} "provenance": {origin}\n}}\n'
