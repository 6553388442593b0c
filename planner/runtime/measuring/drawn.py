"""Draw a predicted step above the measured one, on one axis. Needs no torch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from planner.jsonio import PROBLEMS
from planner.jsonio.ibatch import IbatchAnswer
from planner.model.units import format_ns
from planner.programs import Answer
from planner.runtime.measuring.measured import Run, compared, slowest, timeline_of
from planner.solving.timeline import Interval, Mark, Timeline

_COMPUTATION, _NETWORK = "computation", "network"


def predicted_timeline(answers: Sequence[Answer]) -> Timeline | None:
    """Return the predicted timeline of a step, from the start of its backward pass, or None.

    Of plans that push and pull, the pulls begin at the end of the pushes.
    """
    if len({answer.direction for answer in answers if isinstance(answer, IbatchAnswer)}) == 1:
        return None  # half a step
    ordered = sorted(answers, key=lambda answer: getattr(answer, "direction", "") != "push")
    intervals: list[Interval] = []
    begin = 0
    for answer in ordered:
        view = PROBLEMS[answer.problem].view(answer)
        if not isinstance(view, Timeline):
            return None
        for interval in view.intervals:
            computes = interval.kind in ("backward", "forward")
            intervals.append(
                replace(
                    interval,
                    resource=_COMPUTATION if computes else _NETWORK,
                    start_ns=interval.start_ns + begin,
                    end_ns=interval.end_ns + begin,
                )
            )
        begin += view.end_ns
    return Timeline((_COMPUTATION, _NETWORK), tuple(intervals))


class Shown(NamedTuple):
    """A step of one rank, from its backward pass to the next one's (times in ns)."""

    run: int
    rank: int
    step: int
    took_ns: int


def shown_step(runs: Sequence[Run], usual_ns: int) -> Shown:
    """Return the step whose time is nearest to the usual one; each run counts at least two."""
    shown: list[Shown] = []
    for run, (ranks, first) in enumerate(runs):
        for rank, events in enumerate(ranks):
            starts = {event.step: event.start_ns for event in events if event.kind == "backward"}
            shown += [
                Shown(run, rank, step, starts[step + 1] - start)
                for step, start in starts.items()
                if step >= first and step + 1 in starts
            ]
    return min(shown, key=lambda each: abs(each.took_ns - usual_ns))


def beside_each_other(
    name: str, answers: Sequence[Answer], runs: Sequence[Run]
) -> tuple[str, Timeline, int | None]:
    """Return a title, a timeline of prediction and measurement, and the step's lower bound.

    A bound above the measured time is left out: then the model computed faster than planned for.
    """
    steps = [step for events, first in runs for step in slowest(events, first)]
    usual = compared(answers, steps)[0].median_ns
    run, rank, step, took = shown_step(runs, usual)
    measured, predicted = timeline_of([runs[run][0][rank]], step), predicted_timeline(answers)
    turn = f"round {run + 1}, " if len(runs) > 1 else ""
    title = (
        f"{name}: median step {format_ns(usual)} (nearest, shown: rank {rank}, {turn}step {step})"
    )
    shown, bound = {"measured": (measured, took)}, None
    if predicted is None:
        title += "; plans predict no whole step here"
    else:
        ratio = usual / max(predicted.end_ns, 1)
        title += f", {ratio:.2f} times as long as predicted"
        least = answers[0].lower_bound_ns if len(answers) == 1 else None  # of two: of no step
        bound = least if least is not None and least <= took else None
        shown = {"predicted": (predicted, predicted.end_ns), **shown}
    lanes = {
        (which, lane): f"{says}, {which}"
        for lane, says in enumerate((_COMPUTATION, _NETWORK))
        for which in shown
    }
    intervals = tuple(
        replace(span, resource=lanes[which, line.resources.index(span.resource)])
        for which, (line, _) in shown.items()
        for span in line.intervals
    )
    marks = tuple(Mark(end_ns, f"end of the step, {which}") for which, (_, end_ns) in shown.items())
    return title, Timeline(tuple(lanes.values()), intervals, (), marks), bound
