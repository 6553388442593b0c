"""The JSON form of dataflow graphs, and of graphs that torch.fx traced."""

from collections.abc import Iterable
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from planner.jsonio.decoding import decode, typed
from planner.jsonio.types import PositiveSize, Size, Time, as_document, says, unset_to_none
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Op, Parameter, Phase
from planner.model.validation import shown

Spread = Annotated[Time, says("interquartile range of the measured times")]
OpNames = str | Annotated[tuple[str, ...], Meta(min_length=1)]


class OpDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operation, and the names of those whose results it needs."""

    name: str
    duration_ns: Time = field(name="ns")
    phase: Phase = field(name="pass")
    after: tuple[str, ...] = ()
    spread_ns: Spread | UnsetType = UNSET


class ParameterDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One parameter: the backward ops that update its gradient, the forward ops that read it."""

    name: str
    size_bytes: PositiveSize = field(name="bytes")
    updated_by: OpNames
    read_by: OpNames


def graph_of(ops: Iterable[OpDocument], parameters: Iterable[ParameterDocument]) -> Graph:
    """Return the typed graph; errors carry a path into ``ops`` or ``parameters``."""
    return Graph(
        tuple(
            Op(op.name, op.duration_ns, op.phase, op.after, unset_to_none(op.spread_ns))
            for op in ops
        ),
        tuple(
            Parameter(row.name, row.size_bytes, _several(row.updated_by), _several(row.read_by))
            for row in parameters
        ),
    )


def documents_of(graph: Graph) -> tuple[tuple[OpDocument, ...], tuple[ParameterDocument, ...]]:
    """Return the JSON forms of a graph's ops and parameters."""
    return (
        tuple(as_document(OpDocument, op) for op in graph.ops),
        tuple(
            as_document(
                ParameterDocument,
                parameter,
                updated_by=_short(parameter.updated_by),
                read_by=_short(parameter.read_by),
            )
            for parameter in graph.parameters
        ),
    )


def _several(names: OpNames) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _short(names: tuple[str, ...]) -> OpNames:
    return names[0] if len(names) == 1 else names


# ---
# The JSON form of torch.fx graphs, as `planner.profiling.fx` writes them.

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
