"""The units of FSDP2 in a profiler's trace: what it gathered, when, and what ran between.

Problem: which modules does a job gather together, when, and how long does each compute?
Method: FSDP2 marks what its hooks do with the name of the module: ``FSDP::pre_forward (layers.0)``,
where its gather is asked for (``all_gather``), where its gradients leave
(``post_backward_reduce``). The n-th gather that a step asked for is the n-th all-gather that it
sent. On a device a unit computes from the first kernel launched behind its mark to the first one
launched behind the next; on a processor between the marks themselves, transfers aside. What runs
behind the last unit's forward pass, such as a loss, counts to it.
Guarantee: every gather and reduce-scatter of a step belongs to one unit, or an error says why not.
Complexity: O(events · log events). Source: _fsdp_state.py, _fsdp_param_group.py of PyTorch 2.13.
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from planner.formats.importers.kineto_events import Event
from planner.model.errors import NotApplicableError
from planner.model.units import counted
from planner.traces.buckets import Burst
from planner.traces.recorded import (
    Recorded,
    Spans,
    Transfer,
    both,
    clipped,
    length,
    merged,
    without,
)
from planner.traces.units import RecordedUnit, Units

_MARK = re.compile(r"FSDP::(\w+)(?: \((.*)\))?( \[pg=\d+\])?")
_ROOT = ""  # the model itself has no name
_BESIDE = 20  # gathers and reduce-scatters that overlap for 1/_BESIDE of their time share links


class _Mark(NamedTuple):
    """A hook of FSDP2: what it does, for which unit."""

    kind: str
    unit: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class _Step:
    """One step: its settings, the computation of its units, and its transfers."""

    units: tuple[RecordedUnit, ...]
    own_bytes: tuple[int, int]
    buffers: int
    sent: tuple[tuple[Transfer, ...], tuple[Transfer, ...]]
    lasts_ns: int
    waited_ns: int

    @property
    def settings(self) -> object:
        """The properties that steps of one kind share."""
        rows = (replace(unit, forward_ns=0, backward_ns=0) for unit in self.units)
        return tuple(rows), self.own_bytes, self.buffers


def has_units(ranges: Sequence[Event]) -> bool:
    """Return whether the ranges of a trace are those of a job of FSDP2."""
    return any(mark.name.startswith("FSDP::") for mark in ranges)


def units_in(ranges: Sequence[Event], recorded: Recorded) -> Units:
    """Return the units of the commonest kind of step.

    Raises
    ------
    NotApplicableError
        If no step is a chain of units whose transfers are known.
    """
    if not recorded.steps or not recorded.periods:
        raise NotApplicableError(
            "",
            "no steps are marked (ProfilerStep#N), or none launches kernels: record with a "
            "schedule, call step(), and give ProfilerActivity.CPU, too",
        )
    steps: dict[int, _Step] = {}
    reasons: Counter[str] = Counter()
    for place in range(len(recorded.steps)):
        try:
            steps[place] = _step(ranges, recorded, place)
        except NotApplicableError as error:
            reasons[error.message] += 1
    if not steps:
        raise NotApplicableError("", reasons.most_common(1)[0][0])
    kind = Counter(step.settings for step in steps.values()).most_common(1)[0][0]
    alike = {place: step for place, step in steps.items() if step.settings == kind}
    rows, first = list(alike.values()), next(iter(alike.values()))
    units = tuple(
        replace(
            unit,
            forward_ns=round(median(row.units[at].forward_ns for row in rows)),
            backward_ns=round(median(row.units[at].backward_ns for row in rows)),
        )
        for at, unit in enumerate(first.units)
    )
    lasts = round(median(row.lasts_ns for row in rows))
    waited = min(round(median(row.waited_ns for row in rows)), lasts)
    passes = min(sum(unit.forward_ns + unit.backward_ns for unit in units), lasts - waited)
    gathers, reduces = (
        tuple(
            Burst(1, each.size_bytes or 0, each.lasts_ns) for row in rows for each in row.sent[kind]
        )
        for kind in (0, 1)
    )
    return Units(
        units=units,
        own_bytes=first.own_bytes,
        buffers=first.buffers,
        shared=_beside([row.sent for row in rows]),
        steps=tuple(alike),
        gathers=gathers,
        reduces=reduces,
        parts={"passes": passes, "waiting": waited, "other": lasts - waited - passes},
    )


def _step(ranges: Sequence[Event], recorded: Recorded, place: int) -> _Step:
    """Return one step, or say why it is no chain of units."""
    marks = list(_marks(ranges, recorded.steps[place].start_ns, recorded.steps[place].end_ns))
    order, moments = _chain(marks)
    asked = [mark for mark in marks if mark.kind == "all_gather"]
    left = [mark for mark in marks if mark.kind == "post_backward_reduce"]
    gathers, reduces = (
        _sent(recorded, place, kind, marked)
        for kind, marked in (("all_gather", asked), ("reduce_scatter", left))
    )
    gathered, scattered = _sizes(asked, gathers), _sizes(left, reduces)
    issued: dict[str, list[int]] = defaultdict(list)
    for mark in asked:
        issued[mark.unit].append(bisect_right(moments, mark.start_ns) - 1)
    spans = _computed(recorded, place, [*moments, _behind(marks, order)], asked, gathers + reduces)
    count = len(order)
    units = []
    for at, name in enumerate(order):
        if len(issued[name]) not in (1, 2):
            times = f"{len(issued[name])} times a step, not once or twice"
            raise NotApplicableError("", f"{name} is gathered {times}")
        first, *again = issued[name]
        units.append(
            RecordedUnit(
                name,
                gathered[name],
                scattered.get(name, 0),
                spans[1 + at],
                spans[2 * count - at],
                min(max(first, 0), at),
                max(again[0], count) if again else None,
            )
        )
    sent = merged((each.start_ns, each.end_ns) for each in gathers + reduces)
    period = recorded.periods[place]
    exposed = clipped(sent, period)
    if recorded.device:
        exposed = without(exposed, recorded.computation)
    return _Step(
        tuple(units),
        (gathered.get(_ROOT, 0), scattered.get(_ROOT, 0)),
        _buffers(marks),
        (gathers, reduces),
        period[1] - period[0],
        length(exposed),
    )


def _marks(ranges: Sequence[Event], begin: int, end: int) -> Iterator[_Mark]:
    """Yield the hooks of FSDP2 between two moments."""
    first = bisect_right(ranges, begin - 1, key=lambda mark: mark.start_ns)
    last = bisect_right(ranges, end, key=lambda mark: mark.start_ns)
    for mark in ranges[first:last]:
        if found := _MARK.fullmatch(mark.name):
            kind, unit, several = found.groups()
            if several:
                reason = f"{unit} shards its parameters in several ways (a mesh for each)"
                raise NotApplicableError("", reason)
            yield _Mark(kind, unit or _ROOT, mark.start_ns, mark.end_ns)


def _chain(marks: Sequence[_Mark]) -> tuple[list[str], list[int]]:
    """Return the units in the order of the forward pass, and when each begins each pass."""
    passes: list[dict[str, int]] = [{}, {}]
    for mark in marks:
        if mark.kind in ("pre_forward", "pre_backward") and mark.unit != _ROOT:
            passes[mark.kind == "pre_backward"].setdefault(mark.unit, mark.start_ns)
    forward, backward = passes
    order = list(forward)
    if not order:
        what = "FSDP2 shards nothing but the model itself: shard its blocks, too"
        raise NotApplicableError("", what)
    if list(backward) != order[::-1] or max(forward.values()) > min(backward.values()):
        raise NotApplicableError(
            "",
            f"the backward pass does not follow the {len(order)} units of the forward pass in "
            "reverse: units are planned that follow each other",
        )
    for name in order:
        inside = [other for other in order if other.startswith(f"{name}.")]
        if inside:
            raise NotApplicableError(
                "", f"unit {inside[0]} is inside {name}: units are planned that follow each other"
            )
    return order, [*forward.values(), *backward.values()]


def _sent(
    recorded: Recorded, place: int, kind: str, asked: Sequence[_Mark]
) -> tuple[Transfer, ...]:
    """Return the transfers of a kind in a step, which must be as many as were asked for."""
    own = [each for each in recorded.transfers if each.step == place]
    found = [each for each in own if each.collective == kind]
    sums = sum(each.collective == "all_reduce" for each in own)
    if recorded.device and kind == "reduce_scatter" and 1 < len(asked) <= sums:
        raise NotApplicableError("", "gradients are summed over replicas, too (hybrid sharding)")
    name = kind.replace("_", "-")
    if len(found) != len(asked):
        what = f"FSDP2 asked for {counted(len(asked), name)} a step, and {len(found)} were sent"
        raise NotApplicableError("", what)
    if not all(each.size_bytes for each in found):
        raise NotApplicableError("", f"no {name} has a size: record with record_shapes=True")
    return tuple(found)


def _sizes(asked: Sequence[_Mark], sent: Sequence[Transfer]) -> dict[str, int]:
    """Return the bytes of each unit's transfers."""
    sizes: dict[str, int] = {}
    for mark, transfer in zip(asked, sent, strict=True):
        size = transfer.size_bytes or 0
        if sizes.setdefault(mark.unit, size) != size:
            raise NotApplicableError("", f"transfers of {mark.unit or 'the model'} differ in size")
    return sizes


def _behind(marks: Sequence[_Mark], order: Sequence[str]) -> int:
    """Return when the first unit's backward pass has ended."""
    return max(
        mark.end_ns
        for mark in marks
        if mark.unit == order[0] and mark.kind.startswith(("pre_backward", "post_backward"))
    )


def _buffers(marks: Sequence[_Mark]) -> int:
    """Return the reduce-scatters that leave before a hook waits for one; 1 if none waits."""
    waits = [mark.start_ns for mark in marks if mark.kind == "post_backward_rs_wait"]
    first = min(waits, default=0)
    left = sum(mark.kind == "post_backward_reduce" and mark.start_ns < first for mark in marks)
    return max(left, 1)


def _computed(
    recorded: Recorded,
    place: int,
    moments: Sequence[int],
    asked: Sequence[_Mark],
    sent: Sequence[Transfer],
) -> list[int]:
    """Return the computation in front of the first moment and behind each one (ns).

    Kernels launched while a gather is `asked` for copy its input, earlier than others compute.
    """
    begin, end = recorded.periods[place]
    if recorded.device:
        copies = merged((mark.start_ns, mark.end_ns) for mark in asked)
        cuts = [end] * len(moments)
        first = bisect_right(recorded.launched, (begin, -1))
        for start, launch in recorded.launched[first : bisect_right(recorded.launched, (end, -1))]:
            at = bisect_right(moments, launch) - 1
            if at >= 0 and not clipped(copies, (launch, launch + 1)):
                cuts[at] = min(cuts[at], start)
        for at in reversed(range(len(cuts) - 1)):  # a moment behind which nothing is launched
            cuts[at] = min(cuts[at], cuts[at + 1])
        busy: Spans = recorded.computation
    else:
        cuts = list(moments)
        busy = without(((begin, end),), merged((each.start_ns, each.end_ns) for each in sent))
    edges = [begin, *cuts, end]
    return [length(clipped(busy, (min(start, stop), stop))) for start, stop in pairwise(edges)]


def _beside(sent: Sequence[tuple[Sequence[Transfer], Sequence[Transfer]]]) -> bool:
    """Return whether gathers and reduce-scatters overlap."""
    overlapped = lasted = 0
    for kinds in sent:
        gathers, reduces = (merged((each.start_ns, each.end_ns) for each in kind) for kind in kinds)
        overlapped += length(both(gathers, reduces))
        lasted += min(length(gathers), length(reduces))
    return overlapped * _BESIDE > lasted
