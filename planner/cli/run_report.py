"""The report of ``planner run``: predicted and measured times, as text and as JSON."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, structs

from planner.cli.common import ERROR_SIGN
from planner.cli.compare_tables import warning_lines
from planner.families.bml.program import made
from planner.jsonio.bigdl import BigdlAnswer
from planner.jsonio.fsdp import FsdpAnswer
from planner.jsonio.ibatch import IbatchAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.runs import ComparisonReport, PlanReport, RatioReport, RunReport, TransferReport
from planner.jsonio.types import as_document
from planner.model.units import counted, format_bytes, format_ns
from planner.programs.from_plans import recipes_of
from planner.runtime.measuring.measured import batches_of, compared, predicted_transfers
from planner.solving.diagnostics import MeasurementConditions, disturbances
from planner.view.table import format_table

if TYPE_CHECKING:
    from planner.programs import Answer
    from planner.runtime.measuring.measured import BatchTime, MeasuredTime, StepTime
    from planner.runtime.measuring.trial import Trial

_WAITED = (
    "measured: on the rank that a transfer kept least; waited: how much longer it kept another, "
    "which came earlier and waited for the slower rank, not for the network"
)


@dataclass(frozen=True, slots=True)
class Ran:
    """Alternating trials of plans and of DDP, or of FSDP2's default, and what computed them."""

    options: argparse.Namespace
    answers: "Sequence[Answer]"
    planned: "Sequence[Trial]"
    plain: "Sequence[Trial]"
    threads: Sequence[int]  # of each rank
    machine: MeasurementConditions  # rank 0's

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.threads)

    @property
    def sharded(self) -> bool:
        """Whether FSDP2 follows the plan."""
        return isinstance(self.answers[0], FsdpAnswer)


def report(ran: Ran) -> str:
    """Return the report as text."""
    steps = _times(ran.planned)
    lines = [f"plan: {answer.headline()}" for answer in ran.answers]
    number, length = counted(ran.ranks, "rank"), counted(len(steps), "step")
    lines.append(f"run: {ran.options.model}, {number}, {length}, {ran.options.optimizer}")
    lines.append(f"summed up by: {_collective(ran)}")
    lines += _warnings(ran)
    rows = [_row(measured) for measured in compared(ran.answers, steps)]
    header = ("", "predicted", "measured", "middle half", "off by")
    lines += ["", format_table(header, rows), f"off by: {ERROR_SIGN}"]
    if not ran.sharded:
        lines += ["", *_batches(ran)]
    if ran.plain:
        lines += ["", _standing(ran)]
    if busy := disturbances(ran.machine):
        lines += ["", *warning_lines(busy)]
    return "\n".join(lines) + "\n"


def as_json(ran: Ran) -> str:
    """Return the report as JSON."""
    run = RunReport(
        plans=tuple(
            as_document(PlanReport, answer, file=path, ranks=_ranks(answer) or UNSET)
            for path, answer in zip(ran.options.plans, ran.answers, strict=False)
        ),
        model=ran.options.model,
        optimizer=ran.options.optimizer,
        ranks=ran.ranks,
        collective=_collective(ran),
        warnings=(*_warnings(ran), *disturbances(ran.machine)) or UNSET,
        warmup=ran.planned[-1].warmup,
        comparisons=tuple(
            as_document(ComparisonReport, time)
            for time in compared(ran.answers, _times(ran.planned))
        ),
        transfers=tuple(
            as_document(
                TransferReport,
                batch,
                direction=batch.direction or None,
                bytes=size,
                predicted_ns=predicted,
            )
            for batch, predicted, size in _transfers(ran)
        ),
    )
    if ran.plain:
        of, times = ("fsdp2" if ran.sharded else "ddp"), _times(ran.plain)
        beside = {f"{of}_step_ns": tuple(t.step_ns for t in times), f"against_{of}": _against(ran)}
        run = structs.replace(run, **beside)
    return msgspec.json.encode(run).decode() + "\n"


def _collective(ran: Ran) -> str:
    """Return the names of the programs that reduced the gradients."""
    first, ranks = ran.answers[0], ran.ranks
    if isinstance(first, IterationAnswer):
        recipes = dict.fromkeys(recipes_of(first).values())
        names = [f"ring({ranks})" if recipe is None else made(recipe).name for recipe in recipes]
        return ", ".join(names)
    if ran.sharded:
        return "FSDP2"
    if isinstance(first, BigdlAnswer | IbatchAnswer):
        return f"direct({ranks})"
    return f"ring({ranks})"


def _ranks(answer: "Answer") -> int | None:
    """Return the number of ranks that a plan assumes, if known."""
    name = {"bigdl": "nodes", "iteration": "workers"}.get(answer.problem, "ranks")
    known = getattr(answer, name, None)
    return known if isinstance(known, int) else None


def _warnings(ran: Ran) -> list[str]:
    """Return reasons why predictions may not fit the measurements."""
    answers, ranks = ran.answers, ran.ranks
    known = sorted({count for count in map(_ranks, answers) if count is not None} - {ranks})
    warnings = [
        f"planned for {count} ranks, run on {ranks}: predictions are for {count}" for count in known
    ]
    warnings += other_threads(answers, ran.threads)
    known_before = [text for answer in answers for text in answer.warnings or ()]
    return [*warnings, *warning_lines(list(dict.fromkeys(known_before)))]


def other_threads(answers: "Sequence[Answer]", ranks: Sequence[int]) -> tuple[str, ...]:
    """Return a warning if ranks compute with other threads than the profiles of the plans."""
    profiled = {answer.profile_threads for answer in answers if answer.profile_threads is not UNSET}
    if not profiled or profiled == set(ranks):
        return ()
    planned = " and ".join(counted(count, "thread") for count in sorted(profiled))
    least, most = min(ranks), max(ranks)
    here = counted(most, "thread") if least == most else f"{least} to {most} threads"
    text = f"the profile was measured with {planned}, a rank here computes with {here}"
    return (f"{text}: give planner profile and planner run the same --threads",)


def _times(trials: "Sequence[Trial]") -> "list[StepTime]":
    return [step for trial in trials for step in trial.steps]


def _row(measured: "MeasuredTime") -> tuple[str, ...]:
    ordered = sorted(measured.measured_ns)
    low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    return (
        measured.name,
        "–" if measured.predicted_ns is None else format_ns(measured.predicted_ns),
        format_ns(measured.median_ns),
        f"{format_ns(low)} – {format_ns(high)}",
        "–" if measured.error is None else f"{100 * measured.error:+.1f} %",
    )


def _batches(ran: Ran) -> list[str]:
    """Return the table of predicted and measured times of each transfer, and a note."""
    transfers = list(_transfers(ran))
    largest = max((size or 0 for *_, size in transfers), default=0)
    rows = [
        (
            f"{batch.direction or 'all-reduce'} {batch.batch + 1}",
            "–" if size is None else format_bytes(size, largest),
            "–" if predicted is None else format_ns(predicted),
            format_ns(round(median(batch.sending_ns))),
            format_ns(round(median(batch.waited_ns))),
        )
        for batch, predicted, size in transfers
    ]
    header = ("transfer", "size", "predicted", "measured", "waited")
    return [format_table(header, rows), _WAITED]


def _transfers(ran: Ran) -> "Iterator[tuple[BatchTime, int | None, int | None]]":
    """Yield the measured times of each transfer, its predicted time (ns), and its bytes."""
    known = predicted_transfers(ran.answers)
    for batch in batches_of(ran.planned):
        yield batch, *known.get((batch.direction, batch.batch), (None, None))


def _against(ran: Ran) -> RatioReport:
    """Return the interval of the plan's speed-up over DDP, round by round."""
    return against(
        [
            median(step.step_ns for step in plain.steps)
            / median(step.step_ns for step in planned.steps)
            for planned, plain in zip(ran.planned, ran.plain, strict=True)
        ]
    )


def against(ratios: Sequence[float]) -> RatioReport:
    """Return the interval of a ratio over at least one round; one round shows no difference.

    The true median lies in the interval with probability 1 - 2^(1-n) for n rounds.
    """
    low, high = min(ratios), max(ratios)
    differs = len(ratios) > 1 and not low <= 1 <= high
    return RatioReport(
        median=median(ratios), low=low, high=high, rounds=len(ratios), differs=differs
    )


def _standing(ran: Ran) -> str:
    """Return a sentence on whether the plan and the default differ, and by how much."""
    interval = _against(ran)
    took = round(median(step.step_ns for step in _times(ran.plain)))
    rounds = counted(interval.rounds, "alternating round")
    text = f"{'FSDP2 by default' if ran.sharded else 'DDP'}: {format_ns(took)} a step; "
    about = f"{interval.median:.2f}x as fast"
    between = f"{interval.low:.2f}x to {interval.high:.2f}x in {rounds}"
    if interval.rounds == 1:
        return f"{text}the plan was {about} in 1 round, which cannot tell a difference from chance"
    if not interval.differs:
        return f"{text}no difference: the plan is {about}, but {between} contains 1"
    sure = f"{interval.confidence:.0%} sure for the median"
    return f"{text}the plan is {about} ({between}, {sure})"
