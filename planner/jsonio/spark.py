"""The JSON form of the content of Spark's event logs.

``planner import spark-events`` writes fitted constants, and requests made from them.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.families.drizzle.calibration import Calibration, Measurement
from planner.families.drizzle.loops import Application, Loop, Sent, main_loop
from planner.families.drizzle.problem import Problem
from planner.jsonio.types import Count, Time, filled, laid_out, number
from planner.model.validation import MAX_VALUE

_ELEMENT_BYTES = 4


class OverheadDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scheduling time of an iteration of so many tasks, in groups of so many iterations."""

    tasks: Count
    group_size: Count
    overhead_ns: Annotated[int, Meta(ge=1, le=MAX_VALUE, description="nanoseconds")]


class GroupsConstants(Struct, frozen=True, kw_only=True):
    """What scheduling takes, as a request says it."""

    group_ns: Fraction
    task_ns: Fraction
    constant_task_ns: Fraction


class SparkDrizzle(Struct, frozen=True, kw_only=True):
    """A request of the problem `drizzle`, but for its limits, and how well its constants fit."""

    compute_ns: Time
    tasks: Count
    constants: GroupsConstants
    confounded: tuple[str, ...]
    mean_error: float
    measurements: tuple[OverheadDocument, ...]


class SparkBigdl(Struct, frozen=True, kw_only=True):
    """What a request of the problem `bigdl` needs, as far as the log shows it.

    `link_bytes_per_s` is what tasks received while they waited for it.
    """

    elements: Count
    element_bytes: Count
    nodes: Count
    partitions_per_node: Count
    link_bytes_per_s: float | UnsetType = UNSET


class SparkProvenance(Struct, frozen=True, kw_only=True):
    """Where the numbers come from, and why they may be off."""

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
    bigdl: SparkBigdl
    provenance: SparkProvenance


def encode_spark(
    applications: Sequence[Application],
    loops: Sequence[Loop],
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
        drizzle=filled(
            SparkDrizzle,
            fitted,
            problem,
            tasks=problem.tasks or 1,
            constants=filled(GroupsConstants, fitted),
            mean_error=float(sum(errors, Fraction(0)) / len(errors)),
            measurements=tuple(filled(OverheadDocument, row) for row in measurements),
        ),
        bigdl=_bigdl(main_loop(loops), applications),
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


def _bigdl(loop: Loop, applications: Sequence[Application]) -> SparkBigdl:
    """Return the gradient size, receivers and bandwidth of the largest stage's tasks."""
    nodes = max(application.executors for application in applications)
    slots = max(application.slots for application in applications)
    gradients = max(stage.tasks for job in loop.jobs for stage in job.shape)
    sent = Sent(*map(sum, zip(*(job.sent for job in loop.jobs), strict=True)))
    handed_on = (sent.written_bytes or sent.result_bytes) // gradients
    rate = None
    if sent.remote_bytes and sent.fetch_wait_ns and slots:
        rate = Fraction(sent.remote_bytes * slots * 10**9, sent.fetch_wait_ns * nodes)
    return SparkBigdl(
        elements=max(handed_on // _ELEMENT_BYTES, 1),
        element_bytes=_ELEMENT_BYTES,
        nodes=nodes,
        partitions_per_node=-(-gradients // nodes),
        link_bytes_per_s=UNSET if rate is None else number(rate),
    )
