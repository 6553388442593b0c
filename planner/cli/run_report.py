"""The report of ``planner run``: predicted and measured times, as text and as JSON."""

import argparse
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from planner.cli.common import ERROR_SIGN
from planner.cli.compare_tables import warning_lines
from planner.families.bml.program import made
from planner.jsonio import PROBLEMS
from planner.jsonio.bigdl import BigdlAnswer
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.ibatch import IbatchAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.runs import ComparisonReport, PlanReport, RatioReport, RunReport, TransferReport
from planner.model.units import counted, format_bytes, format_ns
from planner.programs.from_plans import recipes_of
from planner.runtime.measuring.explained import RatioInterval, against, explained, other_threads
from planner.runtime.measuring.measured import batches_of, compared, predicted_transfers, slowest
from planner.solving.diagnostics import Circumstances
from planner.view.table import format_table

if TYPE_CHECKING:
    from planner.programs import Answer
    from planner.runtime.measuring.measured import MeasuredTime, StepTime
    from planner.runtime.measuring.trial import Trial

_TURNS = (
    "a batch is a turn of the plan, in which each rank pulls a slice from one other: with push "
    "that of a gradient, with pull updated weights; T_F: the time to send the whole gradient"
)
_WAITED = (
    "measured: on the rank that a transfer kept least; waited: how much longer it kept another, "
    "which came earlier and waited for the slower rank, not for the network"
)


def report(
    options: argparse.Namespace,
    answers: "Sequence[Answer]",
    planned: "Sequence[Trial]",
    plain: "Sequence[Trial]",
    machine: Circumstances,
    ranks: int,
) -> str:
    """Return the report as text.

    `planned` and `plain` are the alternating trials of the plan and of DDP, `machine` the
    conditions on rank 0 during the trials.
    """
    steps = _times(planned)
    lines = [f"plan: {PROBLEMS[answer.problem].headline(answer)}" for answer in answers]
    number, length = counted(ranks, "rank"), counted(len(steps), "step")
    lines.append(f"run: {options.model}, {number}, {length}, {options.optimizer}")
    lines.append(f"summed up by: {_collective(options, answers, ranks)}")
    lines += _warnings(options, answers, ranks, machine)
    rows = [_row(measured) for measured in compared(answers, steps)]
    header = ("", "predicted", "measured", "middle half", "off by")
    lines += [
        "",
        format_table(header, rows),
        f"off by: {ERROR_SIGN}",
        "",
        *_batches(answers, planned),
    ]
    lines += ["", *_explained(answers, planned, machine)]
    if plain:
        lines += ["", _standing(_against(planned, plain), plain)]
    return "\n".join(lines) + "\n"


def as_json(
    options: argparse.Namespace,
    answers: "Sequence[Answer]",
    planned: "Sequence[Trial]",
    plain: "Sequence[Trial]",
    machine: Circumstances,
    ranks: int,
) -> str:
    """Return the report as JSON, from the arguments of `report`."""
    predictions = predicted_transfers(answers)
    transfers = []
    for batch in batches_of((trial.events, trial.warmup) for trial in planned):
        predicted, size = predictions.get((batch.direction, batch.batch), (None, None))
        transfers.append(
            TransferReport(
                direction=batch.direction or None,
                batch=batch.batch,
                bytes=size,
                predicted_ns=predicted,
                measured_ns=batch.measured_ns,
                waited_ns=batch.waited_ns,
                overtook=batch.overtook,
            )
        )
    run = RunReport(
        plans=tuple(
            _about(path, answer) for path, answer in zip(options.plans, answers, strict=True)
        ),
        model=options.model,
        optimizer=options.optimizer,
        ranks=ranks,
        collective=_collective(options, answers, ranks),
        warnings=tuple(_warnings(options, answers, ranks, machine)) or UNSET,
        warmup=planned[-1].warmup,
        comparisons=tuple(
            ComparisonReport(
                name=time.name, predicted_ns=time.predicted_ns, measured_ns=time.measured_ns
            )
            for time in compared(answers, _times(planned))
        ),
        transfers=tuple(transfers),
        explanations=_explained(answers, planned, machine),
        ddp_step_ns=tuple(step.step_ns for step in _times(plain)) if plain else UNSET,
        against_ddp=_ratio(_against(planned, plain)) if plain else UNSET,
    )
    return msgspec.json.encode(run).decode() + "\n"


def _ratio(interval: RatioInterval) -> RatioReport:
    return RatioReport(
        median=interval.median,
        low=interval.low,
        high=interval.high,
        rounds=interval.rounds,
        differs=interval.differs,
    )


def _about(path: str, answer: "Answer") -> PlanReport:
    ranks = _ranks(answer)
    return PlanReport(
        file=path,
        problem=answer.problem,
        method=answer.method,
        direction=answer.direction if isinstance(answer, IbatchAnswer) else UNSET,
        ranks=UNSET if ranks is None else ranks,
    )


def _collective(options: argparse.Namespace, answers: "Sequence[Answer]", ranks: int) -> str:
    """Return the names of the programs that reduced the gradients."""
    first = answers[0]
    if isinstance(first, IterationAnswer) and first.synchronisation is not UNSET:
        recipes = dict.fromkeys(recipes_of(first).values())
        names = [f"ring({ranks})" if recipe is None else made(recipe).name for recipe in recipes]
        return ", ".join(names)
    if isinstance(first, BigdlAnswer | IbatchAnswer):
        return f"direct({ranks})"
    return f"ring({ranks})" if options.bcube is None else f"bml({options.bcube})"


def _ranks(answer: "Answer") -> int | None:
    """Return the number of ranks that a plan assumes, if known."""
    if isinstance(answer, BigdlAnswer):
        return len(answer.slices) if isinstance(answer.slices, tuple) else None
    if isinstance(answer, IterationAnswer):
        return answer.workers
    if isinstance(answer, CaramelAnswer | IbatchAnswer) and answer.ranks is not UNSET:
        return answer.ranks
    return None


def _warnings(
    options: argparse.Namespace, answers: "Sequence[Answer]", ranks: int, machine: Circumstances
) -> "list[str]":
    """Return reasons why predictions may not fit the measurements."""
    known = sorted({count for count in map(_ranks, answers) if count is not None} - {ranks})
    warnings = [
        f"planned for {count} ranks, run on {ranks}: predictions are for {count}" for count in known
    ]
    if options.bcube is not None:
        warnings.append(
            f"summed up by BML on BCube({options.bcube}): predictions are for that only if the "
            "plan's network was measured with calibrate network --bcube"
        )
    warnings += other_threads(answers, machine.each)
    known_before = [text for answer in answers for text in answer.warnings or ()]
    return [*warnings, *warning_lines(list(dict.fromkeys(known_before)))]


def _times(trials: "Sequence[Trial]") -> "list[StepTime]":
    return [step for trial in trials for step in slowest(trial.events, trial.warmup)]


def _row(measured: "MeasuredTime") -> tuple[str, ...]:
    low, high = _middle(measured.measured_ns)
    return (
        measured.name,
        "–" if measured.predicted_ns is None else format_ns(measured.predicted_ns),
        format_ns(measured.median_ns),
        f"{format_ns(low)} – {format_ns(high)}",
        _off_by(measured.error),
    )


def _off_by(error: float | None) -> str:
    return "–" if error is None else f"{100 * error:+.1f} %"


def _middle(values: Sequence[int]) -> tuple[int, int]:
    """Return the quartiles that bound the middle half."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]


def _batches(answers: "Sequence[Answer]", planned: "Sequence[Trial]") -> list[str]:
    """Return the table of predicted and measured times of each transfer, and notes."""
    predictions = predicted_transfers(answers)
    first = answers[0]
    directions = {answer.direction for answer in answers if isinstance(answer, IbatchAnswer)}
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    for batch in batches_of((trial.events, trial.warmup) for trial in planned):
        predicted, size = predictions.get((batch.direction, batch.batch), (None, None))
        name = f"{batch.direction} batch {batch.batch + 1}".strip()
        if isinstance(first, BigdlAnswer) and _own(first, batch.batch):
            name += " (own slices)"
        elif directions and batch.direction not in directions:
            name += " (everything)"
        rows.append(
            (
                name,
                "–" if size is None else format_bytes(size),
                "–" if predicted is None else format_ns(predicted),
                format_ns(round(median(batch.sending_ns))),
                format_ns(round(median(batch.waited_ns))),
            )
        )
        if batch.overtook:
            steps = counted(len(batch.measured_ns), "step")
            notes.append(f"{name} overtook others in {batch.overtook} of {steps}")
    if isinstance(first, BigdlAnswer):
        notes.append(_TURNS)
    if directions == {"pull"}:
        notes.append("no plan to push: all gradients leave in one batch")
    elif directions == {"push"}:
        notes.append("no plan to pull: all parameters arrive in one batch")
    header = ("transfer", "size", "predicted", "measured", "waited")
    return [format_table(header, rows), _WAITED, *notes]


def _own(answer: BigdlAnswer, turn: int) -> bool:
    """Return whether each rank takes its own slice in this turn, so that nothing is sent."""
    order = answer.pulls()
    if not isinstance(order, tuple):
        return False
    return all(row[turn] == rank for rank, row in enumerate(order))


def _against(planned: "Sequence[Trial]", plain: "Sequence[Trial]") -> RatioInterval:
    """Return the interval of the plan's speed-up over DDP, round by round."""
    return against(
        [
            median(step.step_ns for step in _times([plain_trial]))
            / median(step.step_ns for step in _times([planned_trial]))
            for planned_trial, plain_trial in zip(planned, plain, strict=True)
        ]
    )


def _standing(interval: RatioInterval, plain: "Sequence[Trial]") -> str:
    """Return a sentence on whether the plan and DDP differ, and by how much."""
    ddp = round(median(step.step_ns for step in _times(plain)))
    rounds = counted(interval.rounds, "alternating round")
    text = f"DDP: {format_ns(ddp)} a step; "
    about = f"{interval.median:.2f}x as fast"
    between = f"{interval.low:.2f}x to {interval.high:.2f}x in {rounds}"
    if interval.rounds == 1:
        return f"{text}the plan was {about} in 1 round, which cannot tell a difference from chance"
    if not interval.differs:
        return f"{text}no difference: the plan is {about}, but {between} contains 1"
    sure = f"{interval.confidence:.0%} sure for the median"
    return f"{text}the plan is {about} ({between}, {sure})"


def _explained(
    answers: "Sequence[Answer]", planned: "Sequence[Trial]", machine: Circumstances
) -> tuple[str, ...]:
    return explained(answers, [(trial.events, trial.warmup) for trial in planned], machine)
