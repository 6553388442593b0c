"""The JSON form of profiles."""

from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.jsonio.decoding import decode, typed
from planner.jsonio.graphs import OpDocument, ParameterDocument, documents_of, graph_of
from planner.jsonio.types import Size, Time, as_dataclass, as_document, laid_out, says
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph
from planner.model.layers import KINDS
from planner.model.profiles import Profile
from planner.model.validation import MAX_VALUE

Count = Annotated[int, Meta(ge=0, le=2**31)]
Shape = Annotated[tuple[Annotated[int, Meta(ge=1, le=MAX_VALUE)], ...], says("lengths")]


class ProvenanceDocument(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The source of the numbers."""

    kind: Literal["measured", "imported", "synthetic"]
    source: str
    date: str = ""
    processor: str = ""
    threads: Count | None = None
    warmup: Count | None = None
    repetitions: Count | None = None
    statistic: str = ""
    versions: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    warnings: Annotated[tuple[str, ...], says("why the numbers may be off; answers repeat it")] = ()


class LayerDocument(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One layer."""

    name: str
    forward_ns: Time
    backward_ns: Time
    parameter_bytes: Size
    gradient_bytes: Size | None = None
    activation_bytes: Size = 0
    kept_bytes: (
        Annotated[Size, says("kept for the backward pass; if unknown, the output is")] | None
    ) = None
    gradient_ready_ns: Time | None = None
    forward_spread_ns: Time | None = None
    backward_spread_ns: Time | None = None
    block: Count | None = None
    parameters: Annotated[
        tuple[str, ...], says("names in the model; none if they are unknown")
    ] = ()
    kind: Annotated[str, Meta(extra_json_schema={"enum": list(KINDS)})] | None = None
    input_shape: Shape | None = None
    output_shape: Shape | None = None
    kernel: Shape | None = None
    stride: Shape | None = None
    connections: (
        Annotated[int, Meta(ge=0, le=MAX_VALUE, description="multiply-adds of a sample, forward")]
        | None
    ) = None
    weights: Annotated[int, Meta(ge=0, le=MAX_VALUE)] | None = None


class ProfileDocument(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A profiled model: its layers in the order of forward computation, its dataflow graph.

    Give layers, or ops and parameters, or all three.
    """

    name: str
    provenance: ProvenanceDocument
    batch_size: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    layers: Annotated[tuple[LayerDocument, ...], Meta(min_length=1)] | UnsetType = UNSET
    ops: Annotated[tuple[OpDocument, ...], Meta(min_length=1)] | UnsetType = UNSET
    parameters: Annotated[tuple[ParameterDocument, ...], Meta(min_length=1)] | UnsetType = UNSET
    fixed_order: Annotated[
        bool, says("the ops run in the order listed, whatever a plan says, as in torch's autograd")
    ] = False

    def graph(self) -> Graph | None:
        """Return the dataflow graph, if there is one."""
        if self.ops is not UNSET and self.parameters is not UNSET:
            return graph_of(self.ops, self.parameters)
        if self.ops is not UNSET:
            raise InvalidInputError("parameters", "missing: ops come with parameters")
        if self.parameters is not UNSET:
            raise InvalidInputError("ops", "missing: parameters come with ops")
        if self.layers is UNSET:
            raise InvalidInputError("layers", "missing: expected layers, or ops and parameters")
        return None


def decode_profile(data: bytes | str) -> Profile:
    """Read a profile from JSON text; an error has the path of the first wrong field."""
    return profile_of(typed(decode(data), ProfileDocument))


def profile_of(document: ProfileDocument) -> Profile:
    """Return the typed profile; errors carry a path."""
    known = {"layers": ()} if document.layers is UNSET else {}
    return as_dataclass(Profile, document, graph=document.graph(), **known)


def encode_profile(profile: Profile) -> str:
    """Return a profile as JSON text, with one line per layer, op or parameter."""
    ops, parameters = documents_of(profile.graph) if profile.graph else ((), ())
    known: dict[str, Any] = {"ops": ops or UNSET, "parameters": parameters or UNSET}
    if not profile.layers:
        known["layers"] = UNSET
    return laid_out(as_document(ProfileDocument, profile, **known))


def read_profile(path: str | PathLike[str]) -> Profile:
    """Read a profile from a file.

    Raises
    ------
    InvalidInputError
        If the file is not a valid profile, with the path of the first wrong field.
    OSError
        If it cannot be read.
    """
    return decode_profile(Path(path).read_bytes())
