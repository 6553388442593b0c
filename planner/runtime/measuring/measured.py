"""Times measured by the ranks, compared with the plan's prediction. Needs no torch.

A training step lasts from one call of `Executor.step` to the next: forward pass, backward pass and
update. Exposed communication is the part in which the computation waits for transfers. For plans
that pull and push, the forward phase lasts from the start of the pulls (at the end of the previous
step or later) to the end of the forward pass; the backward phase from there to the end of the last
push.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import sub
from statistics import mean, median
from typing import NamedTuple

from planner.jsonio import PROBLEMS
from planner.jsonio.bigdl import BigdlAnswer
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.fsdp import FsdpAnswer
from planner.jsonio.ibatch import IbatchAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.model.units import format_ns
from planner.programs import Answer
from planner.runtime.executors.trace import Event
from planner.solving.timeline import Interval, Kind, Mark, Timeline

Run = tuple[Sequence[Sequence[Event]], int]
"""The events of each rank, and the first step that counts."""

_COMPARED = ("step", "exposed communication", "forward phase", "backward phase", "computation")
"""Names of the times that are compared with predictions, in the order of `StepTime`."""

_KINDS: dict[str, Kind] = {"": "all_reduce", "push": "push", "pull": "pull"}


class StepTime(NamedTuple):
    """Times of one step on one rank (ns)."""

    step_ns: int
    exposed_ns: int  # exposed communication: the computation waits for transfers
    forward_phase_ns: int  # for plans that pull and push, like the next field: see the module
    backward_phase_ns: int
    computation_ns: int  # the passes without waiting


def off_by(predicted_ns: float, measured_ns: float) -> float | None:
    """Return predicted / measured - 1; positive if the prediction was too long.

    None if nothing was measured.
    """
    return predicted_ns / measured_ns - 1 if measured_ns else None


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """A predicted time and its measurements, one per step, as means over the ranks."""

    name: str
    predicted_ns: int | None  # None if the plan makes no prediction
    measured_ns: tuple[int, ...]

    @property
    def median_ns(self) -> int:
        """Median of the measurements."""
        return round(median(self.measured_ns))

    @property
    def error(self) -> float | None:
        """The relative error (see `off_by`); None without a prediction."""
        return None if self.predicted_ns is None else off_by(self.predicted_ns, self.median_ns)


@dataclass(frozen=True, slots=True)
class BatchTime:
    """Times of the transfers of one batch.

    A transfer occupies the channel of the slowest rank for the measured time. That includes the
    time waited for the last rank: the excess over the rank with the shortest time.
    """

    direction: str  # "pull" or "push" where a plan has both; else empty
    batch: int  # its number in the plan
    measured_ns: tuple[int, ...]  # one value per step
    waited_ns: tuple[int, ...] = ()

    @property
    def sending_ns(self) -> tuple[int, ...]:
        """The network's time: the measured time without waiting for other ranks."""
        return tuple(map(sub, self.measured_ns, self.waited_ns))


def steps_of(events: Iterable[Event]) -> dict[int, StepTime]:
    """Return the times of each complete step of one rank, by number."""
    by_step: dict[int, list[Event]] = {}
    for event in events:
        by_step.setdefault(event.step, []).append(event)
    waits = [event for several in by_step.values() for event in several if event.kind == "wait"]
    times = {}
    for number, several in by_step.items():
        whole = next((event for event in several if event.kind == "step"), None)
        backward = next((event for event in several if event.kind == "backward"), None)
        if whole is None or backward is None:
            continue
        passes = [event for event in several if event.kind in ("forward", "backward")]
        pulled = [row.start_ns for row in _transfers(by_step.get(number - 1, ()), "pull")]
        pushed = [row.end_ns for row in _transfers(several, "push")]
        times[number] = StepTime(
            whole.end_ns - whole.start_ns,
            waited_in(whole, waits),
            backward.start_ns - max(whole.start_ns, min(pulled, default=0)),
            max([backward.end_ns, *pushed]) - backward.start_ns,
            sum(each.end_ns - each.start_ns - waited_in(each, waits) for each in passes),
        )
    return times


def _transfers(events: Iterable[Event], direction: str) -> Iterator[Event]:
    return (row for row in events if row.kind == "transfer" and row.direction == direction)


def waited_in(event: Event, waits: Iterable[Event]) -> int:
    """Return how much of an event overlaps with waiting (ns)."""
    return sum(
        max(0, min(wait.end_ns, event.end_ns) - max(wait.start_ns, event.start_ns))
        for wait in waits
    )


def mean_steps(ranks: Sequence[Iterable[Event]], first: int) -> tuple[StepTime, ...]:
    """Return the mean times over all ranks, for each complete step from `first` on."""
    each = [steps_of(events) for events in ranks]
    numbers = sorted(set.intersection(*(set(steps) for steps in each)))
    return tuple(
        mean_time(steps[number] for steps in each) for number in numbers if number >= first
    )


def mean_time(ranks: Iterable[Sequence[int]]) -> StepTime:
    """Return the mean times of a step over all ranks.

    In the long run the steps of all ranks take the same time. Where transfers reach into the next
    step, ranks need not end a step together, and the longest step is 2 to 3 % too long.
    """
    return StepTime(*(round(mean(times)) for times in zip(*ranks, strict=True)))


def compared(answers: Sequence[Answer], steps: Sequence[StepTime]) -> tuple[MeasuredTime, ...]:
    """Return the predicted and measured times of plans; under FSDP2 only the step's time."""
    predicted: dict[str, int | None] = dict.fromkeys(_COMPARED)
    for answer in answers:
        if isinstance(answer, CaramelAnswer | IterationAnswer):
            predicted["step"] = answer.iteration_ns
            predicted["exposed communication"] = answer.stall_ns
            predicted["computation"] = answer.iteration_ns - answer.stall_ns
        elif isinstance(answer, IbatchAnswer):
            phase = "forward phase" if answer.direction == "pull" else "backward phase"
            predicted[phase] = answer.makespan_ns
        elif isinstance(answer, FsdpAnswer):
            return (MeasuredTime("step", answer.iteration_ns, tuple(row.step_ns for row in steps)),)
        elif isinstance(answer, BigdlAnswer):
            predicted["exposed communication"] = answer.objective_ns
    both = predicted["forward phase"], predicted["backward phase"]
    if both[0] is not None and both[1] is not None:
        predicted["step"] = both[0] + both[1]
    always = ("step", "exposed communication")
    shown = [name for name, known in predicted.items() if name in always or known is not None]
    values = dict(zip(predicted, zip(*steps, strict=True), strict=True))
    return tuple(MeasuredTime(name, predicted[name], values[name]) for name in shown)


def batches_of(runs: Iterable[Run]) -> tuple[BatchTime, ...]:
    """Return the times of each batch over several runs of a plan."""
    lengths: dict[tuple[str, int], dict[tuple[int, int], list[int]]] = {}
    for run, (ranks, first) in enumerate(runs):
        for row in (row for events in ranks for row in events):
            if row.kind == "transfer" and row.step >= first:
                steps = lengths.setdefault((row.direction, row.batch), {})
                steps.setdefault((run, row.step), []).append(row.end_ns - row.start_ns)
    return tuple(
        BatchTime(
            *name,
            tuple(max(each) for each in steps.values()),
            tuple(max(each) - min(each) for each in steps.values()),
        )
        for name, steps in sorted(lengths.items())
    )


def timeline_of(ranks: Sequence[Sequence[Event]], step: int) -> Timeline:
    """Return the timeline of every rank from a step's backward pass to the next one's.

    Each rank's time 0 is the start of its own backward pass.
    """
    resources: list[str] = []
    intervals: list[Interval] = []
    for rank, events in enumerate(ranks):
        own = [event for event in events if event.step in (step, step + 1)]
        begun = {event.step: event.start_ns for event in own if event.kind == "backward"}
        start, end = begun[step], begun[step + 1]
        lanes = f"rank {rank} computation", f"rank {rank} network"
        resources += lanes
        inside = [
            event._replace(start_ns=max(event.start_ns, start), end_ns=min(event.end_ns, end))
            for event in own
            if event.start_ns < end and event.end_ns > start
        ]
        intervals += _computation(lanes[0], inside, start)
        intervals += [
            Interval(
                lanes[1],
                event.start_ns - start,
                event.end_ns - start,
                _KINDS[event.direction],
                event.batch,
                f"{event.direction or 'all-reduce'} {event.batch + 1}",
            )
            for event in inside
            if event.kind == "transfer"
        ]
    return Timeline(tuple(resources), tuple(intervals))


def _computation(lane: str, events: Sequence[Event], start: int) -> list[Interval]:
    """Return the passes without their waiting times."""
    waits = sorted((event.start_ns, event.end_ns) for event in events if event.kind == "wait")
    intervals = []
    for event in events:
        if event.kind not in {"forward", "backward"}:
            continue
        reached = event.start_ns
        for begin, finish in [*waits, (event.end_ns, event.end_ns)]:
            if begin > event.end_ns or finish < reached:
                continue
            if begin > reached:
                label = f"{event.kind} pass"
                intervals.append(
                    Interval(lane, reached - start, begin - start, event.kind, -1, label)
                )
            reached = max(reached, finish)
    return intervals


# ---
# Predicted times of transfers. Needs no torch.


def predicted_transfers(answers: Sequence[Answer]) -> dict[tuple[str, int], tuple[int, int | None]]:
    """Return time (ns) and bytes, if known, of the predicted transfers, by direction and batch."""
    known: dict[tuple[str, int], tuple[int, int | None]] = {}
    for answer in answers:
        rows: list[tuple[str, int, int | None]] = []
        if isinstance(answer, CaramelAnswer):
            rows = [("", sent.end_ns - sent.start_ns, sent.bytes) for sent in answer.groups]
        elif isinstance(answer, IterationAnswer) and isinstance(answer.transfers, tuple):
            rows = [
                (sent.kind.removeprefix("all_reduce"), sent.end_ns - sent.start_ns, sent.bytes)
                for sent in answer.transfers
            ]
        elif isinstance(answer, IbatchAnswer) and isinstance(answer.schedule, tuple):
            sizes = answer.layer_bytes if isinstance(answer.layer_bytes, tuple) else None
            for row in answer.schedule:
                size = None if sizes is None else sum(sizes[slice(*row.layers)])
                rows.append((answer.direction, row.transfer_end_ns - row.transfer_start_ns, size))
        for direction, time_ns, size in rows:
            number = sum(other == direction for other, _ in known)
            known[direction, number] = time_ns, size
    return known


# ---
# A predicted step above the measured one, on one axis.


_COMPUTATION, _NETWORK = "computation", "network"


def predicted_timeline(answers: Sequence[Answer]) -> Timeline | None:
    """Return the predicted timeline of a step, from the start of its backward pass, or None.

    For plans that push and pull, the pulls begin at the end of the pushes.
    """
    if len({answer.direction for answer in answers if isinstance(answer, IbatchAnswer)}) == 1:
        return None  # a plan of one direction is half a step
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


def shown_step(runs: Sequence[Run], usual_ns: int) -> tuple[int, int, int, int]:
    """Return run, rank, number and time (ns) of the step whose time is nearest to `usual_ns`.

    A step lasts from its backward pass to the next backward pass; each run has at least two steps.
    """
    shown: list[tuple[int, int, int, int]] = []
    for run, (ranks, first) in enumerate(runs):
        for rank, events in enumerate(ranks):
            starts = {event.step: event.start_ns for event in events if event.kind == "backward"}
            shown += [
                (run, rank, step, starts[step + 1] - start)
                for step, start in starts.items()
                if step >= first and step + 1 in starts
            ]
    return min(shown, key=lambda each: abs(each[-1] - usual_ns))


def beside_each_other(
    name: str, answers: Sequence[Answer], runs: Sequence[Run]
) -> tuple[str, Timeline, int | None]:
    """Return a title, a timeline of prediction and measurement, and the step's lower bound.

    A bound above the measured time is left out: the model computed faster than the plan assumes.
    """
    steps = [step for events, first in runs for step in mean_steps(events, first)]
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
        least = answers[0].lower_bound_ns if len(answers) == 1 else None  # two bound no step
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
