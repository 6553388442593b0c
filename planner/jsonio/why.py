"""The JSON form of ``planner why``: waits, their causes, and the saving of a better plan."""

from collections.abc import Sequence
from dataclasses import asdict

from msgspec import Struct

from planner.traces.recorded import Kernels
from planner.traces.why import Why


class CausesReport(Struct, frozen=True, kw_only=True):
    """Parts of waits, by cause, in ns."""

    input: int
    host: int
    straggler: int
    slow: int
    startup: int
    late: int
    large: int
    bytes: int
    undivided: int


class KernelsReport(Struct, frozen=True, kw_only=True):
    """Kernels of one name on one rank."""

    name: str
    library: str
    times: int
    total_ns: int


class StepReport(Struct, frozen=True, kw_only=True):
    """Parts of one step of one rank; they sum to how long it lasted."""

    rank: int
    step: str
    lasts_ns: int
    compute_ns: int
    waited_ns: int
    copied_ns: int
    idle_ns: int


class RankReport(Struct, frozen=True, kw_only=True):
    """Where the time of one rank went."""

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
    counted: tuple[KernelsReport, ...]
    doubtful: tuple[KernelsReport, ...]


class WaitReport(Struct, frozen=True, kw_only=True):
    """One transfer that computation waited for."""

    rank: int
    step: str | None
    collective: str
    size_bytes: int | None
    lasts_ns: int
    waited_ns: int
    causes: CausesReport
    last_rank: int | None


class CostReport(Struct, frozen=True, kw_only=True):
    """What no transfer of a collective undercut."""

    startup_ns: int
    ns_per_byte: float


class SavingReport(Struct, frozen=True, kw_only=True):
    """What a better plan saves of a step."""

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
    parts: tuple[StepReport, ...]
    causes: CausesReport
    waits: tuple[WaitReport, ...]
    costs: dict[str, CostReport]
    saving: SavingReport
    unexplained: bool
    warnings: tuple[str, ...]


def why_report(answer: Why, warnings: Sequence[str] = ()) -> WhyReport:
    """Return the JSON form of an answer, with the warnings about its traces."""
    saving = answer.saving
    return WhyReport(
        ranks=tuple(
            RankReport(
                rank=recorded.rank,
                device=recorded.device,
                steps=len(recorded.steps),
                overlap=part.overlap,
                counted=_kernels(recorded.counted),
                doubtful=_kernels(recorded.doubtful),
                **asdict(part),
            )
            for recorded, part in zip(answer.ranks, answer.breakdowns, strict=True)
        ),
        steps=answer.steps,
        parts=tuple(StepReport(**asdict(part)) for part in answer.parts),
        causes=CausesReport(**answer.causes),
        waits=tuple(
            WaitReport(
                rank=wait.rank,
                step=_step(answer, wait.rank, wait.step),
                collective=wait.transfer.collective,
                size_bytes=wait.transfer.size_bytes,
                lasts_ns=wait.transfer.lasts_ns,
                waited_ns=wait.waited_ns,
                causes=CausesReport(**wait.causes),
                last_rank=wait.last_rank,
            )
            for wait in answer.waits
        ),
        costs={
            name: CostReport(startup_ns=cost.startup_ns, ns_per_byte=float(cost.ns_per_byte))
            for name, cost in answer.costs.items()
        },
        saving=SavingReport(
            exposed_ns=saving.exposed_ns,
            straggler_ns=saving.straggler_ns,
            least_ns=saving.least_ns,
            at_most_ns=saving.at_most_ns,
            plan_ns=saving.plan_ns,
            saved_ns=saving.saved_ns,
            doubtful_ns=saving.doubtful_ns,
            reason=saving.reason,
        ),
        unexplained=answer.unexplained,
        warnings=tuple(warnings),
    )


def _kernels(rows: Sequence[Kernels]) -> tuple[KernelsReport, ...]:
    return tuple(KernelsReport(**asdict(row)) for row in rows)


def _step(answer: Why, rank: int, place: int) -> str | None:
    steps = next(recorded.steps for recorded in answer.ranks if recorded.rank == rank)
    return steps[place].name if place >= 0 else None
