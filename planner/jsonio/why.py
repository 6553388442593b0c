"""The JSON form of ``planner why``: waits, their causes, and the saving of a better plan."""

from collections.abc import Sequence

from msgspec import Struct

from planner.jsonio.types import as_document
from planner.traces.recorded import Kernels, StepParts
from planner.traces.why import Why


class RankReport(Struct, frozen=True, kw_only=True):
    """The parts of the time of one rank."""

    rank: int
    device: bool
    steps: int
    whole_ns: int
    idle_ns: int
    compute_ns: int
    non_compute_ns: int
    communication_ns: int
    overlapped_ns: int
    exposed_ns: int
    input_ns: int
    overlap: float | None
    counted: tuple[Kernels, ...]
    doubtful: tuple[Kernels, ...]


class WaitReport(Struct, frozen=True, kw_only=True):
    """One transfer that computation waited for."""

    rank: int
    step: str | None
    collective: str
    size_bytes: int | None
    lasts_ns: int
    waited_ns: int
    causes: dict[str, int]
    last_rank: int | None


class CostReport(Struct, frozen=True, kw_only=True):
    """The affine lower bound on the observed transfers of a collective."""

    startup_ns: int
    ns_per_byte: float


class SavingReport(Struct, frozen=True, kw_only=True):
    """The part of a step that a better plan saves."""

    exposed_ns: int
    straggler_ns: int
    least_ns: int
    at_most_ns: int
    plan_ns: int | None
    saved_ns: int | None
    doubtful_ns: int
    reason: str


class WhyReport(Struct, frozen=True, kw_only=True):
    """What ``planner why --json`` prints."""

    ranks: tuple[RankReport, ...]
    steps: int
    parts: tuple[StepParts, ...]
    causes: dict[str, int]
    waits: tuple[WaitReport, ...]
    costs: dict[str, CostReport]
    saving: SavingReport
    unexplained: bool
    warnings: tuple[str, ...]


def why_report(answer: Why, warnings: Sequence[str] = ()) -> WhyReport:
    """Return the JSON form of an answer, with the warnings about its traces."""
    ranks = (
        as_document(RankReport, part, recorded, steps=len(recorded.steps))
        for recorded, part in zip(answer.ranks, answer.breakdowns, strict=True)
    )
    waits = (
        as_document(
            WaitReport,
            wait,
            wait.transfer,
            step=_step(answer, wait.rank, wait.step),
            causes=dict(wait.causes),
        )
        for wait in answer.waits
    )
    costs = {name: as_document(CostReport, cost) for name, cost in answer.costs.items()}
    return as_document(
        WhyReport,
        answer,
        ranks=tuple(ranks),
        causes=dict(answer.causes),
        waits=tuple(waits),
        costs=costs,
        warnings=tuple(warnings),
    )


def _step(answer: Why, rank: int, place: int) -> str | None:
    steps = next(recorded.steps for recorded in answer.ranks if recorded.rank == rank)
    return steps[place].name if place >= 0 else None
