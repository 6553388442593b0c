"""The links of a request: given field by field, or as a network document."""

from fractions import Fraction
from typing import Protocol

from msgspec import UNSET, UnsetType

from planner.jsonio.network import NetworkDocument, described, measured_as
from planner.jsonio.settled_network import settled
from planner.model.errors import InvalidInputError
from planner.model.network import Network as Links
from planner.model.network import links


class LinkFields(Protocol):
    """Protocol of requests that describe the links between machines."""

    @property
    def link_bytes_per_s(self) -> Fraction | UnsetType:
        """Bandwidth of a link (bytes/s)."""

    @property
    def latency_ns(self) -> int | UnsetType:
        """Start-up cost of a step."""

    @property
    def network(self) -> NetworkDocument | UnsetType:
        """Network document, in place of the other fields."""

    @property
    def reduce_ns_per_byte(self) -> Fraction | UnsetType:
        """Time to add one byte (ns)."""


LINK_RULES = {
    "oneOf": [
        {"required": ["link_bytes_per_s"], "properties": {"network": False}},
        {
            "required": ["network"],
            "properties": {"link_bytes_per_s": False, "latency_ns": False},
        },
    ]
}
"""JSON Schema rules of a request with `LinkFields`."""


def links_of(request: LinkFields, levels: int, machines: int | None = None) -> Links:
    """Return the links of a request for machines with `levels` NICs each.

    `machines` selects the measured collectives; by default those among the most ranks. Raises
    InvalidInputError if the links are given twice or not at all, or if the network does not
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
    known = settled(described(request.network), None, machines)
    return links(measured_as(known, None), levels, added)


def link_notes(request: LinkFields, machines: int) -> tuple[str, ...]:
    """Return warnings about links that were estimated from measured collectives."""
    if request.network is UNSET:
        return ()
    return settled(described(request.network), None, machines).notes
