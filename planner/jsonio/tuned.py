"""The JSON form of ``planner tune``: settings for a recorded job, and how sure their gain is."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from planner.jsonio.types import as_document
from planner.traces.proposals import Proposal


class TuneReport(Struct, frozen=True, kw_only=True):
    """What ``planner tune --json`` prints."""

    rank: int
    steps: int
    target: str
    buckets: tuple[int, ...]
    step_ns: int
    parts: dict[str, int]
    predicted_ns: int
    error: float
    doubtful: bool
    keep: bool
    plan_ns: int
    gain: float
    least_gain: float
    most_gain: float
    at_most: float | None
    contention: bool
    proposed: tuple[int, ...]
    settings: dict[str, Any] | None
    warnings: tuple[str, ...]


def tune_report(
    proposal: Proposal, settings: Mapping[str, Any] | None, warnings: Sequence[str] = ()
) -> TuneReport:
    """Return the JSON form of a proposal, with the settings of its target if there are any."""
    return as_document(
        TuneReport,
        proposal,
        target=proposal.target.name,
        settings=None if settings is None else dict(settings),
        warnings=tuple(warnings),
    )
