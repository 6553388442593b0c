"""Draw a predicted step above the measured one, on one axis. Needs no torch."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from planner.jsonio import PROBLEMS
from planner.jsonio.ibatch import IbatchAnswer
from planner.model.units import format_ns
from planner.programs import Answer
from planner.runtime.measuring.measured import timeline_of
from planner.runtime.measuring.trace import Event
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


def shown_step(events: Iterable[Event], usual_ns: Sequence[int]) -> tuple[int, int, int]:
    """Return a step of typical length, and the starts of its and the next backward pass (ns).

    `events` are those of one rank, at least two steps; the first is avoided. The typical length
    is the median of `usual_ns`.
    """
    starts = {event.step: event.start_ns for event in events if event.kind == "backward"}
    usual = median(usual_ns)
    step = min(
        (step for step in starts if step + 1 in starts),
        key=lambda step: (step == min(starts), abs(starts[step + 1] - starts[step] - usual)),
    )
    return step, starts[step], starts[step + 1]


def beside_each_other(
    name: str,
    answers: Sequence[Answer],
    events: Sequence[Event],
    usual_ns: Sequence[int],
) -> tuple[str, Timeline, int | None]:
    """Return a title, a timeline of prediction and measurement, and the step's lower bound.

    `events` are those of one rank; `usual_ns` are the lengths of steps.
    """
    step, start, end = shown_step(events, usual_ns)
    measured, predicted, took = (
        timeline_of([events], step),
        predicted_timeline(answers),
        end - start,
    )
    title = f"{name}: a step took {format_ns(took)}"
    shown, bound = {"measured": (measured, took)}, None
    if predicted is None:
        title += "; plans predict no whole step here"
    else:
        ratio = took / max(predicted.end_ns, 1)
        title += f", {ratio:.2f} times as long as predicted ({format_ns(predicted.end_ns)})"
        bound = answers[0].lower_bound_ns if len(answers) == 1 else None  # of two: of no step
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
