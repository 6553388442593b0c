"""Profile files: reading, writing, and their schema."""

import json
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from planner.jsonio.decoding import decode, typed
from planner.jsonio.types import Size, Time
from planner.profiles import Layer, Profile, Provenance

__all__ = ["ProfileDocument", "decode_profile", "encode_profile"]

Count = Annotated[int, Meta(ge=0, le=2**31)]


class ProvenanceDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the numbers come from."""

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


class LayerDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One layer."""

    name: str
    forward_ns: Time
    backward_ns: Time
    parameter_bytes: Size
    gradient_bytes: Size | None = None
    activation_bytes: Size = 0
    gradient_ready_ns: Time | None = None
    forward_spread_ns: Time | None = None
    backward_spread_ns: Time | None = None
    block: Count | None = None


class ProfileDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A profiled model: its layers in the order of forward computation."""

    name: str
    provenance: ProvenanceDocument
    batch_size: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    layers: Annotated[tuple[LayerDocument, ...], Meta(min_length=1)]


def decode_profile(data: bytes) -> Profile:
    """Read a profile from JSON text.

    Raises
    ------
    InvalidInputError
        If it is none, with the path of the first bad field.
    """
    document = typed(decode(data), ProfileDocument)
    return Profile(
        name=document.name,
        layers=tuple(Layer(**msgspec.structs.asdict(layer)) for layer in document.layers),
        provenance=Provenance(**msgspec.structs.asdict(document.provenance)),
        batch_size=document.batch_size,
    )


def encode_profile(profile: Profile) -> str:
    """Return a profile as JSON text, one layer a line."""
    plain: dict[str, Any] = msgspec.to_builtins(profile)
    layers = plain.pop("layers")
    head = json.dumps(plain, indent=1, ensure_ascii=False).removesuffix("\n}")
    rows = ",\n".join(
        "  " + json.dumps(_without_nulls(layer), ensure_ascii=False) for layer in layers
    )
    return f'{head},\n "layers": [\n{rows}\n ]\n}}\n'


def _without_nulls(layer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in layer.items() if value is not None}
