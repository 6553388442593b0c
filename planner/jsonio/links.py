"""The links of a request: field by field or as a network document, and which of them failed."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families.collectives.prediction import measured_nic, predicted, range_note
from planner.jsonio.network import Described, NetworkDocument, described, measured_as
from planner.jsonio.types import says
from planner.model.costs import TableCost
from planner.model.errors import InvalidInputError
from planner.model.measured import COLLECTIVES, Collective
from planner.model.network import Network as Links
from planner.model.network import links
from planner.model.topologies import BCube, Failures
from planner.model.validation import MAX_VALUE, inside, integer

# ---
# The cost of one collective among some ranks, from the measured tables of a network document.


def resolved(
    measured: Described, wanted: str | None, ranks: int | None = None, path: str = "network"
) -> Described:
    """Return the network with its tables resolved to the cost of one collective.

    `wanted` is the collective; None asks for the NICs that would carry it. `ranks` is by default
    the largest number measured. The ranks per host are those of the table with as many ranks, or
    else of the largest table. Other networks are returned unchanged. Raises InvalidInputError, at
    `path`, if the tables do not determine the cost.
    """
    single = wanted is None and not measured.algorithm.startswith("bml")  # not a ring's
    if measured.tables is None or (measured.collective is not None and not single):
        return measured
    count, tables = ranks or measured.tables.most_ranks.ranks, measured.tables
    each = max(
        (table.per_host for table in tables.tables if table.ranks == count),
        default=tables.most_ranks.per_host,
    )
    each = each if not count % each else count if count < each else 1
    if wanted is None:
        with inside(path):
            nic, notes = measured_nic(tables, count, each)
        return Described(nic, interference=measured.interference, notes=notes)
    if wanted not in COLLECTIVES:
        raise InvalidInputError(path, f"expected measured {wanted}, got other collectives")
    collective: Collective = wanted
    with inside(path):
        known = predicted(tables, collective, count, each)
    return replace(
        measured, network=known.cost, collective=collective, ranks=count, notes=known.notes
    )


def warnings_of(measured: Described, sizes: Sequence[int]) -> tuple[str, ...]:
    """Return warnings about costs of a plan's transfers (sizes in bytes) that were not measured."""
    cost = measured.network
    if measured.tables is None or not isinstance(cost, TableCost):
        return measured.notes
    beyond = range_note(cost, str(measured.collective), sizes)
    return (*measured.notes, beyond) if beyond else measured.notes


def nics_of(document: NetworkDocument | UnsetType, machines: int) -> Described | None:
    """Return a request's network; of a measured one, the NICs of `machines` machines."""
    return None if document is UNSET else resolved(described(document), None, machines)


def links_of(request: Any, levels: int) -> Links:
    """Return the links of a request of bml or bigdl for machines with `levels` NICs each.

    Raises InvalidInputError if the links are given twice or not at all, or if the network does not
    describe single links.
    """
    added = request.reduce_ns_per_byte
    added = Fraction(0) if added is UNSET else added
    startup, speed = request.latency_ns, request.link_bytes_per_s
    if request.network is UNSET:
        if speed is UNSET:
            raise InvalidInputError("link_bytes_per_s", "missing (or network)")
        return Links(speed, 0 if startup is UNSET else startup, added)
    for name in ("link_bytes_per_s", "latency_ns"):
        if getattr(request, name) is not UNSET:
            raise InvalidInputError(name, "not together with network")
    return links(measured_as(request.resolved_network(), None), levels, added)


# ---
# The JSON form of failures in a BCube, shared by requests, clusters and programs.

Number = Annotated[int, Meta(ge=0, le=MAX_VALUE)]
Digits = Annotated[tuple[Number, ...], says("[v_(k-1), …, v_0]")]
Nic = Annotated[tuple[Digits, Number], says("[digits of the server, level]")]


class FailedDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Failed parts of a network; each link of a BCube belongs to one NIC."""

    servers: tuple[Digits, ...] = ()
    nics: tuple[Nic, ...] = ()
    links: tuple[Nic, ...] = ()
    switches: tuple[
        Annotated[
            tuple[Number, Digits],
            says("[level, the digits its servers have in common]"),
        ],
        ...,
    ] = ()


def failures_of(bcube: BCube, document: FailedDocument, path: str = "failed") -> Failures:
    """Return the typed failures; raise an error at `path` if a part is not in the BCube."""
    nics = set()
    for name in ("nics", "links"):
        for place, (digits, level) in enumerate(getattr(document, name)):
            where = f"{path}.{name}[{place}]"
            server = bcube.server(digits, f"{where}[0]")
            nics.add((server, integer(level, f"{where}[1]", maximum=bcube.k - 1)))
    switches = set()
    for place, (level, digits) in enumerate(document.switches):
        where = f"{path}.switches[{place}]"
        integer(level, f"{where}[0]", maximum=bcube.k - 1)
        switches.add((level, bcube.switch_of(digits, f"{where}[1]")))
    servers = {
        bcube.server(digits, f"{path}.servers[{place}]")
        for place, digits in enumerate(document.servers)
    }
    return Failures(frozenset(servers), frozenset(nics), frozenset(switches))


def failed_document(bcube: BCube, failed: Failures) -> FailedDocument:
    """Return the JSON form of failures; a failed link is stated as its NIC."""
    switches = []
    for level, switch in sorted(failed.switches):
        digits = list(bcube.digits(bcube.on_switch(level, switch)[0]))
        del digits[bcube.k - 1 - level]  # a switch has the digits of its servers but its level's
        switches.append((level, tuple(digits)))
    return FailedDocument(
        servers=tuple(bcube.digits(server) for server in sorted(failed.servers)),
        nics=tuple((bcube.digits(server), level) for server, level in sorted(failed.nics)),
        switches=tuple(switches),
    )
