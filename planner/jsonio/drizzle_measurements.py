"""The JSON interface of ``planner calibrate groups``: measurements in, fitted constants out."""

from collections.abc import Sequence
from fractions import Fraction
from math import fsum
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families.drizzle.calibration import Calibration, Measurement, calibrate
from planner.jsonio.decoding import decode, typed
from planner.jsonio.layout import in_lines, numbers
from planner.jsonio.types import Count
from planner.model.validation import MAX_VALUE


class OverheadDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scheduling time of an iteration of so many tasks, in groups of so many iterations."""

    tasks: Count
    group_size: Count
    overhead_ns: Annotated[int, Meta(ge=1, le=MAX_VALUE, description="nanoseconds")]


class OverheadsDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured overheads."""

    measurements: Annotated[tuple[OverheadDocument, ...], Meta(min_length=1)]


class GroupsConstants(Struct, frozen=True, kw_only=True):
    """What scheduling takes, as a request says it."""

    group_ns: float
    task_ns: float
    constant_task_ns: float


class LeftOut(Struct, frozen=True, kw_only=True):
    """How far constants fitted to all other measurements are off for each of them."""

    left_out: int = 1
    mean_error: float
    largest_error: float
    errors: tuple[float, ...]


class GroupsProvenance(Struct, frozen=True, kw_only=True):
    """Where the constants come from, and how far they can be trusted.

    `confounded` names those that the measurements cannot tell apart.
    """

    kind: Literal["fitted"] = "fitted"
    source: str
    measurements: Count
    confounded: tuple[str, ...]
    mean_error: float
    largest_error: float
    errors: tuple[float, ...]
    held_out: LeftOut | UnsetType = UNSET


class GroupsDocument(Struct, frozen=True, kw_only=True):
    """What ``planner calibrate groups`` writes."""

    constants: GroupsConstants
    provenance: GroupsProvenance


def decode_overheads(data: bytes) -> tuple[tuple[Measurement, ...], Calibration]:
    """Read measured overheads from JSON text, and fit the scheduler's constants to them.

    Raises InvalidInputError with the path of the first wrong field.
    """
    document = typed(decode(data), OverheadsDocument)
    measurements = tuple(
        Measurement(measurement.tasks, measurement.group_size, measurement.overhead_ns)
        for measurement in document.measurements
    )
    return measurements, calibrate(measurements)


def encode_calibration(calibration: Calibration, source: str) -> str:
    """Return fitted constants, as a request takes them, and their provenance as JSON text.

    `source` says where the measurements come from.
    """
    left_out = calibration.held_out
    return in_lines(
        GroupsDocument(
            constants=numbers(GroupsConstants, calibration),
            provenance=GroupsProvenance(
                source=source,
                measurements=len(calibration.errors),
                confounded=tuple(calibration.confounded),
                **_errors(calibration.errors),
                held_out=UNSET if left_out is None else LeftOut(**_errors(left_out)),
            ),
        )
    )


def mean_and_largest(errors: Sequence[Fraction]) -> tuple[float, float]:
    """Return the mean and the largest absolute error."""
    sizes = [abs(float(error)) for error in errors]
    return fsum(sizes) / len(sizes), max(sizes)


def _errors(errors: Sequence[Fraction]) -> dict[str, Any]:
    mean, largest = mean_and_largest(errors)
    return {
        "mean_error": mean,
        "largest_error": largest,
        "errors": [float(error) for error in errors],
    }
