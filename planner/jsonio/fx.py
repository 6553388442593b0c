"""The JSON form of torch.fx graphs, as `planner.profiling.fx` writes them."""

from typing import Annotated

from msgspec import Meta, Struct

from planner.jsonio.decoding import decode, typed
from planner.jsonio.types import Size, Time
from planner.model.errors import InvalidInputError
from planner.model.validation import shown

_VERSION = 1


class FxCollective(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A collective of the graph."""

    kind: str
    group: str
    size_bytes: Size
    mergeable: bool = True
    pack_ns: Time = 0
    unpack_ns: Time = 0
    pack_bytes: Size = 0
    unpack_bytes: Size = 0


class FxNode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node of the graph."""

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    target: str = ""
    storages: tuple[int, ...] = ()
    allocates: tuple[tuple[int, Size], ...] = ()
    kept: bool = False
    duration_ns: Time | None = None
    waits: bool = False
    collective: FxCollective | None = None


class FxDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A graph, and the measured times of each kind of collective."""

    fx: int
    nodes: tuple[FxNode, ...]
    times: dict[str, Annotated[tuple[tuple[Size, Time], ...], Meta(min_length=1)]] = {}
    source: str = ""


def decode_fx(data: bytes) -> FxDocument:
    """Read a graph's document; errors carry the path of the first wrong field."""
    value = decode(data)
    if not isinstance(value, dict) or "fx" not in value:
        raise InvalidInputError("fx", "missing: expected a document of planner.profiling.fx")
    if value["fx"] != _VERSION:
        raise InvalidInputError("fx", f"expected {_VERSION}, got {shown(value['fx'])}")
    document: FxDocument = typed(value, FxDocument)
    return document
