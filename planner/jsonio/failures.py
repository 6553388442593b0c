"""The JSON form of failures in a BCube, shared by requests, clusters and programs."""

from typing import Annotated

from msgspec import Meta, Struct

from planner.model.topologies import BCube, Failures
from planner.model.validation import MAX_VALUE, integer

Number = Annotated[int, Meta(ge=0, le=MAX_VALUE)]
Digits = Annotated[tuple[Number, ...], Meta(description="[v_(k-1), …, v_0]")]
Nic = Annotated[tuple[Digits, Number], Meta(description="[digits of the server, level]")]


class FailedDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What does not work; a link of a BCube is that of one NIC."""

    servers: tuple[Digits, ...] = ()
    nics: tuple[Nic, ...] = ()
    links: tuple[Nic, ...] = ()
    switches: tuple[
        Annotated[
            tuple[Number, Digits],
            Meta(description="[level, the digits its servers have in common]"),
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
    return FailedDocument(
        servers=tuple(bcube.digits(server) for server in sorted(failed.servers)),
        nics=tuple((bcube.digits(server), level) for server, level in sorted(failed.nics)),
        switches=tuple(
            # A switch has the digits of its first server, without the level's digit.
            (level, _without(bcube.digits(bcube.on_switch(level, switch)[0]), bcube.k - 1 - level))
            for level, switch in sorted(failed.switches)
        ),
    )


def _without(digits: tuple[int, ...], place: int) -> tuple[int, ...]:
    return digits[:place] + digits[place + 1 :]
