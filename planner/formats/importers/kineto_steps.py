"""One training step of a profiler's trace: its ops, their times, its gradients.

Method: forward ops are the operators that Python called on the recording thread up to the first
autograd node, and that made a node; backward ops are these nodes. A forward operator bears the
number of the next node to be made, so a node was made by the last operator with its number.
Autograd runs AccumulateGrad as soon as a gradient is complete, right behind the node that completed
it, and it runs nodes in reverse order of making: so that node's forward op is also the first reader
of the parameter. An operator without a node, and the accumulation of gradients, counts for the op
before it. Complexity: O(events · log events).
Source: torch's record_function, torch/csrc/autograd and Kineto as of PyTorch 2.13.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from statistics import fmean
from typing import Any

from planner.formats.importers.communication_kernels import library_of
from planner.formats.importers.kineto_events import ACCUMULATE, RUN, STEP, Event
from planner.formats.importers.kineto_host import waited_inside
from planner.formats.importers.kineto_trace import Call, Trace
from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_VALUE, shown
from planner.traces.recorded import Spans, clipped, length, merged

# ---
# Computation times of the ops of a traced step, and the duration of the step.
#
# Problem: the time between the starts of two ops also holds other work: on a device the end of the
# step before, collectives, and waiting for the host. Method: on a device an op takes as long as its
# kernels run, without collectives; time in which kernels of several ops run counts for the one
# whose kernel started first, so the sum cannot exceed the step. Without a device an op lasts until
# the next one starts: what lies between (Python, operators without a node) is work of the same
# processor, but for collectives that it waits for. A step lasts as long as its range, or, if the
# host runs ahead of the device, from the end of its kernels to that of the next step's. Complexity:
# O(kernels · log kernels). Source: own.


def step_ns(steps: Sequence["TrainingStep"], places: Sequence[int]) -> int:
    """Return the mean duration of a step (ns); `places` are the steps' positions in the trace."""
    first, last = steps[0], steps[-1]
    if len(steps) == 1:
        return max(first.end_ns, first.done_ns) - first.start_ns
    apart = (last.done_ns - first.done_ns) / (places[-1] - places[0])
    return round(max(apart, fmean(step.end_ns - step.start_ns for step in steps)))


def busy_ns(events: Iterable[Event]) -> int:
    """Return the length of the union of the events (ns)."""
    return length(merged((event.start_ns, event.end_ns) for event in events))


def _busy(groups: Sequence[Sequence[Event]]) -> tuple[int, ...]:
    """Return the running time of each group; overlaps count for the event that began first."""
    times = [0] * len(groups)
    covered = None
    events = [
        (event.start_ns, event.end_ns, place) for place, row in enumerate(groups) for event in row
    ]
    for start, end, place in sorted(events):
        begin = start if covered is None else max(start, covered)
        times[place] += max(end - begin, 0)
        covered = max(end, begin)
    return tuple(times)


def _until_the_next(groups: Sequence[Sequence[Event]], waits: Spans) -> tuple[int, ...]:
    """Return the time from the start of each group to that of the next one, without waits."""
    # With several threads a later op may start earlier.
    starts = list(accumulate((group[0].start_ns for group in groups), max))
    end = max(event.end_ns for group in groups for event in group)
    spans = pairwise([*starts, max(end, starts[-1])])
    return tuple(b - a - length(clipped(waits, (a, b))) for a, b in spans)


def _moves(kernel: Event) -> bool:
    """Whether a kernel only moves data between ranks."""
    return kernel.message is not None or bool(library_of(kernel.name))


_UPDATE = "Optimizer.step#"
_APART = ("Optimizer.", "enumerate(DataLoader)")  # ranges whose operators belong to no pass
_REMEDY = "record steps of one forward and one backward pass, without gradient accumulation"
_NO_FORWARD = (
    "no forward op has the Sequence number of a backward op: record the forward and the backward "
    "pass in the same step"
)
_NESTED = (
    "a backward pass inside a backward op, whose inputs cannot be told from parameters: record "
    "without it (checkpoint with use_reentrant=False)"
)
_BYTES = {
    "float": 4,
    "double": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}


@dataclass(frozen=True, slots=True)
class BackwardOp:
    """A backward op, and the position of the forward op that made it; None if not in the trace."""

    name: str
    made_by: int | None


@dataclass(frozen=True, slots=True)
class Gradient:
    """A gradient with shape and size."""

    node: int  # position of its last backward op
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One training step."""

    name: str
    forward: tuple[str, ...]
    backward: tuple[BackwardOp, ...]
    gradients: tuple[Gradient, ...]  # in order of completion
    skipped_ns: int  # time of operators before the first one that autograd numbers
    ops_ns: tuple[int, ...]  # computation of the ops, forward ones first
    device: bool  # whether the ops ran on a device
    start_ns: int  # of the step's range
    end_ns: int
    done_ns: int  # when its last op or kernel ended
    collectives_ns: int  # time of collectives that its ops started on the device


def steps_of(trace: Trace) -> tuple[TrainingStep, ...]:
    """Return the steps of a trace that have a backward pass; an error if there are none."""
    marks = [mark for mark in trace.ranges if mark.name.startswith(STEP)]
    updates = [update for update in trace.ranges if update.name.startswith(_UPDATE)]
    if marks:
        spans = [(mark.name, mark.start_ns, mark.end_ns) for mark in marks]
    else:  # a step ends with its update; without updates all is one step
        ends = [update.end_ns for update in updates] or [MAX_VALUE]
        starts = [-MAX_VALUE, *ends[:-1]]
        spans = [(f"step {k}", *span) for k, span in enumerate(zip(starts, ends, strict=True), 1)]
    starts = [call.event.start_ns for call in trace.calls]
    waits = () if trace.device else waited_inside(trace)
    steps = []
    for name, start, end in spans:
        first, behind = (bisect_left(starts, moment) for moment in (start, end))
        calls = trace.calls[first:behind]
        if any(event.name == ACCUMULATE for call in calls for event in call.inside):
            steps.append(_step(name, calls, trace, (start, end), waits))
    if not steps:
        raise InvalidInputError(
            "traceEvents",
            f"expected events {ACCUMULATE}: record whole training steps, with their backward pass",
        )
    return tuple(steps)


def _step(
    name: str, calls: Sequence[Call], trace: Trace, span: tuple[int, int], waits: Spans
) -> TrainingStep:
    if not -MAX_VALUE < span[0] <= span[1] < MAX_VALUE:  # without marks there may be no limits
        first, last = (calls[0].event.start_ns, max(call.event.end_ns for call in calls))
        span = (max(span[0], first), min(span[1], last))
    runs = [call for call in calls if call.event.name.startswith(RUN)]
    if not runs or runs[0].event.name == RUN + ACCUMULATE:
        raise InvalidInputError(
            name,
            "a gradient is complete before any backward op has run: record whole steps, and with "
            "a PyTorch that names backward ops (events autograd::engine::evaluate_function)",
        )
    groups: list[list[Call]] = []  # a node and the accumulations that follow it
    gradients: list[Gradient] = []
    for call in runs:
        if call.event.name != RUN + ACCUMULATE:
            groups.append([])
        groups[-1].append(call)
        for event in call.inside:
            if event.name == ACCUMULATE:
                if call.event.name != RUN + ACCUMULATE:
                    raise InvalidInputError(event.path, _NESTED)
                gradients += _gradient(event, len(groups) - 1)
    nodes = [group[0].event for group in groups]
    numbers = Counter((node.forward_thread, node.sequence) for node in nodes)
    again = [node for node in nodes if numbers[node.forward_thread, node.sequence] > 1]
    if any(node.sequence is not None for node in again):
        raise InvalidInputError(name, f"runs {shown(again[0].name)} twice: {_REMEDY}")
    calls, skipped = _forward(name, calls, nodes, trace.ranges)
    maker: dict[int | None, int] = {
        event.sequence: place  # the last one stays
        for place, call in enumerate(calls)
        for event in call.inside
        if event.sequence is not None
    }
    makers = [maker.get(node.sequence) for node in nodes]
    forward: list[list[Call]] = []  # an op that made nodes, and following ops that made none
    place_of = {}
    for place, call in enumerate(calls):
        if place in makers or not forward:
            place_of[place] = len(forward)
            forward.append([])
        forward[-1].append(call)
    rows = forward + groups
    kernels = [[kernel for call in row for kernel in call.kernels] for row in rows]
    computing = [[kernel for kernel in row if not _moves(kernel)] for row in kernels]
    device = any(computing)
    if trace.device and not device:
        raise InvalidInputError(
            name,
            "kernels ran on a device, but no operator of the step started one: record the "
            "calls of its runtime too (category cuda_runtime)",
        )
    events = kernels if device else [[call.event for call in row] for row in rows]
    return TrainingStep(
        name=name,
        forward=tuple(call.event.name for call, *_ in forward),
        backward=tuple(
            BackwardOp(node.name.removeprefix(RUN), None if place is None else place_of[place])
            for node, place in zip(nodes, makers, strict=True)
        ),
        gradients=tuple(gradients),
        skipped_ns=skipped,
        ops_ns=_busy(computing) if device else _until_the_next(events, waits),
        device=device,
        start_ns=span[0],
        end_ns=span[1],
        done_ns=max(event.end_ns for row in events for event in row),
        collectives_ns=busy_ns(kernel for row in kernels for kernel in row if _moves(kernel)),
    )


def _forward(
    name: str, calls: Sequence[Call], nodes: Sequence[Event], ranges: Sequence[Event]
) -> tuple[list[Call], int]:
    """Return the calls of the forward pass, and the time of the calls before them (ns)."""
    last_run = {node.sequence: node.start_ns for node in nodes if node.sequence is not None}
    made = Counter(
        call.event.thread
        for call in calls
        for event in call.inside
        if event.sequence in last_run
        and not call.event.name.startswith(RUN)
        and event.start_ns < last_run[event.sequence]
    )
    if not made:
        raise InvalidInputError(name, _NO_FORWARD)
    thread = made.most_common(1)[0][0]
    begin, end = calls[0].event.start_ns, calls[-1].event.start_ns
    apart = [
        span
        for span in ranges
        if span.start_ns <= end
        and begin < span.end_ns
        and span.thread == thread
        and span.name.startswith(_APART)
    ]
    own = [
        call
        for call in calls
        if call.event.thread == thread
        and not call.event.name.startswith(RUN)
        and not any(span.start_ns <= call.event.start_ns < span.end_ns for span in apart)
    ]
    backward_ns = nodes[0].start_ns
    for call in own:  # Python waits for a backward pass: calls within it mean a second one
        if backward_ns < call.event.start_ns < nodes[-1].start_ns:
            raise InvalidInputError(
                name, f"calls {shown(call.event.name)} between backward ops: {_REMEDY}"
            )
    own = [call for call in own if call.event.start_ns < backward_ns]
    numbered = [any(event.sequence is not None for event in call.inside) for call in own]
    if True not in numbered:
        raise InvalidInputError(name, _NO_FORWARD)
    first = numbered.index(True)
    return own[first:], sum(
        skipped.event.end_ns - skipped.event.start_ns for skipped in own[:first]
    )


def _gradient(event: Event, node: int) -> list[Gradient]:
    """Return the gradient of an AccumulateGrad; empty if it was undefined or has no elements."""
    shape = _first(event, "Input Dims", event.dims)
    kind = _first(event, "Input type", event.types)
    if kind == "":
        return []
    if not isinstance(kind, str) or kind not in _BYTES:
        raise _wrong(event, "Input type[0]", f"expected {', '.join(_BYTES)}, got {shown(kind)}")
    if not isinstance(shape, list) or not all(
        type(length) is int and 0 <= length <= MAX_VALUE for length in shape
    ):
        raise _wrong(
            event, "Input Dims[0]", f"expected an array of integers >= 0, got {shown(shape)}"
        )
    size = prod(shape[:64]) * _BYTES[kind]
    if len(shape) > 64 or size > MAX_VALUE:
        raise _wrong(event, "Input Dims[0]", f"expected at most {MAX_VALUE} bytes")
    return [Gradient(node, tuple(shape), size)] if size else []


def _first(event: Event, field: str, value: Any) -> Any:
    if value is None:
        raise _wrong(event, field, "missing: record with record_shapes=True")
    if not isinstance(value, list) or not value:
        raise _wrong(event, field, f"expected an array of one input, got {shown(value)}")
    return value[0]


def _wrong(event: Event, field: str, message: str) -> InvalidInputError:
    return InvalidInputError(f"{event.path}.args.{field}", message)
