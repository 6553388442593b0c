"""What of a BCube has failed, as requests, clusters and programs say it."""

from typing import Annotated

from msgspec import Meta, Struct

from planner.topologies import BCube, Failures
from planner.validation import MAX_VALUE, integer

__all__ = ["Digits", "FailedDocument", "failed_document", "failures_of"]

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
    """Return what a document says of a BCube.

    Raises
    ------
    InvalidInputError
        If something is not in it; `path` is where the document stands.
    """
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
    """Return the document that says what has failed; a link is said as its NIC."""
    return FailedDocument(
        servers=tuple(bcube.digits(server) for server in sorted(failed.servers)),
        nics=tuple((bcube.digits(server), level) for server, level in sorted(failed.nics)),
        switches=tuple(
            # Its digits are those of its first server but that of the level.
            (level, _without(bcube.digits(bcube.on_switch(level, switch)[0]), bcube.k - 1 - level))
            for level, switch in sorted(failed.switches)
        ),
    )


def _without(digits: tuple[int, ...], place: int) -> tuple[int, ...]:
    return digits[:place] + digits[place + 1 :]
