"""A format: a table of layers, `name,forward_ns,backward_ns,parameter_bytes`, with a head."""

import csv

from planner import InvalidInputError, Layer, Profile, Provenance

__all__ = ["read_layers"]


def read_layers(
    data: bytes, *, name: str, source: str, batch_size: int | None
) -> tuple[Profile, tuple[str, ...]]:
    """Return the profile, and warnings: none."""
    layers = []
    for number, row in enumerate(csv.DictReader(data.decode().splitlines()), 2):
        try:
            forward, backward = int(row["forward_ns"]), int(row["backward_ns"])
            size = int(row["parameter_bytes"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"line {number}", f"no row of integers: {error}") from None
        layers.append(Layer(row["name"], forward, backward, size))
    provenance = Provenance(kind="imported", source=source)
    return Profile(name, tuple(layers), provenance, batch_size), ()
