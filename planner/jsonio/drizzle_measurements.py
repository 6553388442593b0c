"""The JSON face of calibrating a scheduler: measured overheads in, constants of a request out."""

import json
from collections.abc import Sequence
from fractions import Fraction
from math import fsum
from typing import Annotated, Any

from msgspec import Meta, Struct

from planner.drizzle.calibration import CONSTANTS, Calibration, Measurement, calibrate
from planner.jsonio.decoding import decode, typed
from planner.jsonio.types import Count
from planner.validation import MAX_VALUE

__all__ = ["decode_overheads", "encode_calibration", "mean_and_largest"]


class OverheadDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scheduling time of an iteration of so many tasks, in groups of so many iterations."""

    tasks: Count
    group_size: Count
    overhead_ns: Annotated[int, Meta(ge=1, le=MAX_VALUE, description="nanoseconds")]


class OverheadsDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured overheads."""

    measurements: Annotated[tuple[OverheadDocument, ...], Meta(min_length=1)]


def decode_overheads(data: bytes) -> tuple[tuple[Measurement, ...], Calibration]:
    """Read measured overheads from JSON text, and fit the constants of the scheduler to them.

    Raises
    ------
    InvalidInputError
        If it is none, with the path of the first bad field.
    """
    document = typed(decode(data), OverheadsDocument)
    measurements = tuple(
        Measurement(one.tasks, one.group_size, one.overhead_ns) for one in document.measurements
    )
    return measurements, calibrate(measurements)


def encode_calibration(found: Calibration, source: str) -> str:
    """Return fitted constants as a request takes them, and their provenance, as JSON text.

    Parameters
    ----------
    found : Calibration
        The fit.
    source : str
        Where the measurements come from.
    """
    provenance: dict[str, Any] = {
        "kind": "fitted",
        "source": source,
        "measurements": len(found.errors),
        "confounded": list(found.confounded),
        **_errors(found.errors),
    }
    if found.held_out is not None:
        provenance["held_out"] = {"left_out": 1, **_errors(found.held_out)}
    parts = []
    constants = {name: _number(getattr(found, name)) for name in CONSTANTS}
    for name, fields in (("constants", constants), ("provenance", provenance)):
        rows = ",\n".join(
            f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
            for key, value in fields.items()
        )
        parts.append(f' "{name}": {{\n{rows}\n }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def mean_and_largest(errors: Sequence[Fraction]) -> tuple[float, float]:
    """Return the mean and the largest of errors, whichever way they go."""
    sizes = [abs(float(error)) for error in errors]
    return fsum(sizes) / len(sizes), max(sizes)


def _errors(errors: Sequence[Fraction]) -> dict[str, Any]:
    mean, largest = mean_and_largest(errors)
    return {"mean_error": mean, "largest_error": largest, "errors": [float(one) for one in errors]}


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)
