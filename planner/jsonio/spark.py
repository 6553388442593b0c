"""The JSON form of the content of Spark's event logs.

``planner import spark-events`` writes fitted constants, and a request made from them.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Literal

from msgspec import Meta, Struct

from planner.families.drizzle.calibration import Calibration, Measurement
from planner.families.drizzle.loops import Application
from planner.families.drizzle.problem import Problem
from planner.jsonio.types import Count, Time, as_document, laid_out
from planner.model.validation import MAX_VALUE


class OverheadDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured scheduling time of an iteration, by number of tasks and iterations per group."""

    tasks: Count
    group_size: Count
    overhead_ns: Annotated[int, Meta(ge=1, le=MAX_VALUE, description="nanoseconds")]


class GroupsConstants(Struct, frozen=True, kw_only=True):
    """The constants of scheduling time, in the fields of a request."""

    group_ns: Fraction
    task_ns: Fraction
    constant_task_ns: Fraction


class SparkDrizzle(Struct, frozen=True, kw_only=True):
    """A request of the problem `drizzle` without its limits, and the error of its constants."""

    compute_ns: Time
    tasks: Count
    constants: GroupsConstants
    confounded: tuple[str, ...]
    mean_error: float
    measurements: tuple[OverheadDocument, ...]


class SparkProvenance(Struct, frozen=True, kw_only=True):
    """The source of the numbers, and the reasons why they may be off."""

    kind: Literal["imported"] = "imported"
    format: Literal["spark-events"] = "spark-events"
    source: tuple[str, ...]
    applications: tuple[str, ...]
    versions: tuple[str, ...]
    jobs: Count
    executors: Count
    slots: int
    warnings: tuple[str, ...]


class SparkDocument(Struct, frozen=True, kw_only=True):
    """What ``planner import spark-events`` writes."""

    drizzle: SparkDrizzle
    provenance: SparkProvenance


def encode_spark(
    applications: Sequence[Application],
    problem: Problem,
    fitted: Calibration,
    measurements: Sequence[Measurement],
    source: Sequence[str],
    warnings: Sequence[str],
) -> str:
    """Return the content of event logs as JSON text.

    `problem`, `fitted` and `measurements` come from `planner.families.drizzle.loops`; `source`
    holds the names of the logs.
    """
    errors = [abs(error) for error in fitted.errors]
    document = SparkDocument(
        drizzle=as_document(
            SparkDrizzle,
            fitted,
            problem,
            tasks=problem.tasks or 1,
            constants=as_document(GroupsConstants, fitted),
            mean_error=float(sum(errors, Fraction(0)) / len(errors)),
            measurements=tuple(as_document(OverheadDocument, row) for row in measurements),
        ),
        provenance=SparkProvenance(
            source=tuple(source),
            applications=tuple(application.name for application in applications),
            versions=tuple(application.version for application in applications),
            jobs=sum(len(application.jobs) for application in applications),
            executors=max(application.executors for application in applications),
            slots=max(application.slots for application in applications),
            warnings=tuple(warnings),
        ),
    )
    return laid_out(document)
