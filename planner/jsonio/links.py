"""The links of a request: by themselves, or as a network."""

from fractions import Fraction
from typing import Protocol

from msgspec import UNSET, UnsetType

from planner.errors import InvalidInputError
from planner.jsonio.network import NetworkDocument, described, measured_as
from planner.jsonio.settled_network import settled
from planner.network import Network as Links
from planner.network import links

__all__ = ["LINK_RULES", "link_notes", "links_of"]


class LinkFields(Protocol):
    """The fields of a request that say what the links between machines do."""

    @property
    def link_bytes_per_s(self) -> Fraction | UnsetType:
        """Bytes a link carries in a second."""

    @property
    def latency_ns(self) -> int | UnsetType:
        """Start-up cost of a step."""

    @property
    def network(self) -> NetworkDocument | UnsetType:
        """A network in place of both."""

    @property
    def reduce_ns_per_byte(self) -> Fraction | UnsetType:
        """Time of adding a byte."""


LINK_RULES = {
    "oneOf": [
        {"required": ["link_bytes_per_s"], "properties": {"network": False}},
        {
            "required": ["network"],
            "properties": {"link_bytes_per_s": False, "latency_ns": False},
        },
    ]
}
"""What the schema says of a request with `LinkFields`."""


def links_of(request: LinkFields, levels: int, machines: int | None = None) -> Links:
    """Return the links of a request, of so many NICs a machine.

    Parameters
    ----------
    request : LinkFields
        The request.
    levels : int
        NICs a machine.
    machines : int, optional
        Among how many machines measured collectives count; by default most.

    Raises
    ------
    InvalidInputError
        If they are given twice or not at all, or the network does not say what a link does.
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
    """Return what of a request's links was not measured, if collectives were.

    Parameters
    ----------
    request : LinkFields
        The request.
    machines : int
        As in `links_of`.
    """
    if request.network is UNSET:
        return ()
    return settled(described(request.network), None, machines).notes
