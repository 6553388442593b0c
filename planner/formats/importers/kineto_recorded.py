"""A profiler's trace as computation and transfers, by step.

On a device kernels are classified by name: transfers
(`planner.formats.importers.communication_kernels`, or what the trace calls a collective), copies,
and computation. If the job has several ranks, kernels that may be transfers are named. A
collective's size is in its kernel's arguments or in those of the range that launched it
(``nccl:all_reduce``, recorded with shapes). Without a device, operators compute, and ranges of gloo
or MPI are the transfers (`planner.formats.importers.kineto_host`). A step owns the transfers it
launched, and ends when the last of what it launched has run. A transfer is ready when the kernels
launched before it have ended; the first gradient of an all-reduce is known if the gradients, in
order of completion, fill the transfers exactly.

Complexity: O(events · log events). Source: torch/csrc/distributed as of PyTorch 2.13.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from planner.formats.importers.communication_kernels import (
    by_name,
    called,
    has_several,
    in_doubt,
    launched_by_sending,
    told_apart,
)
from planner.formats.importers.kineto_events import ACCUMULATE, STEP, CollectiveRecord, Event
from planner.formats.importers.kineto_host import (
    RANGE,
    called_for,
    collective_in,
    is_shape,
    waited_inside,
)
from planner.formats.importers.kineto_trace import Trace
from planner.traces.recorded import Recorded, Spans, Step, Transfer, merged, without

_BYTES = {"float": 4, "int": 4, "double": 8, "long": 8, "half": 2, "bfloat16": 2, "short": 2}
_INPUT = "enumerate(DataLoader)"
_WAITS = re.compile(r"Synchronize")


def recorded_in(trace: Trace, rank: int, *, transfers: re.Pattern[str] | None = None) -> Recorded:
    """Return the computation and the transfers of a trace; `rank` is its rank if it has none.

    `transfers` is a pattern in the names of further kernels that are transfers. With
    it all others compute: no kernel is in doubt.
    """
    ranges = [mark for mark in trace.ranges if RANGE.match(mark.name)]
    steps = tuple(
        Step(mark.name, mark.start_ns, mark.end_ns)
        for mark in trace.ranges
        if mark.name.startswith(STEP)
    )
    inside = launched_by_sending(trace)
    sends, copies, kernels = told_apart(trace.kernels, inside, transfers)
    waits: Spans = ()
    if trace.device:
        busy, moved = kernels, list(_with_ranges(trace, sends, ranges))
    else:
        busy = [
            call.event
            for call in trace.calls
            if not call.event.name.startswith(("c10d::", "record_param_comms", "gloo:"))
        ]
        waits = waited_inside(trace)
        moved = [_Moved(mark, mark, at, name) for mark, at, name in called_for(trace)]
    asked = [each.asked_ns for each in moved]
    sent = [_transfer(each, _step(steps, each.asked_ns)) for each in moved]
    if not trace.device:
        sent = [_of_all_ranks(each, trace.ranks or 1) for each in sent]
    several = has_several(trace, sent=bool(sent))
    doubtful = in_doubt(kernels, inside, sent=bool(sent)) if several and transfers is None else []
    caveats = {kernel.index for kernel in doubtful}
    launched = [(kernel, at) for kernel in kernels if (at := trace.launched_ns(kernel)) is not None]
    return Recorded(
        rank=rank if trace.rank is None else trace.rank,
        ranks=trace.ranks,
        device=trace.device,
        computation=without(_spans(busy), waits),
        memory=_spans(copies),
        transfers=tuple(
            sorted(
                _made_ready(trace, sent, asked, launched, steps),
                key=attrgetter("start_ns", "end_ns"),
            )
        ),
        steps=steps,
        launched=tuple(sorted((kernel.start_ns, at) for kernel, at in launched)),
        input=_spans(mark for mark in trace.ranges if mark.name.startswith(_INPUT)),
        synchronised=_spans(call for call in trace.runtime_calls if _WAITS.search(call.name)),
        periods=_periods(trace, steps) if trace.device else _on_the_host(steps, sent),
        counted=by_name(sends),
        doubtful=by_name(doubtful),
        certain=without(_spans(event for event in busy if event.index not in caveats), waits),
        several=several,
    )


class _Moved(NamedTuple):
    """A kernel, or a range of the host, that moved data."""

    event: Event
    around: Event | None  # the range that it belongs to
    asked_ns: int  # when it was launched or called for
    called: str = ""  # what was called for, if known


def _with_ranges(trace: Trace, sends: Iterable[Event], ranges: Iterable[Event]) -> Iterator[_Moved]:
    """Yield kernels with the collective's range that launched them, if any, and the launch time."""
    by_thread: dict[Any, list[Event]] = defaultdict(list)
    for mark in ranges:
        by_thread[mark.thread].append(mark)
    for send in sends:
        call = trace.launches.get(send.correlation)
        if call is None:
            yield _Moved(send, None, send.start_ns)
            continue
        own = by_thread[call.thread]
        place = bisect_right(own, call.start_ns, key=lambda mark: mark.start_ns) - 1
        around = own[place] if place >= 0 and call.start_ns < own[place].end_ns else None
        yield _Moved(send, around, call.start_ns)


def _periods(trace: Trace, steps: Sequence[Step]) -> tuple[tuple[int, int], ...]:
    """Return start and end of each step on the device; empty if launches are unknown."""
    starts = [step.start_ns for step in steps]
    last = max((step.end_ns for step in steps), default=0)
    ends: list[int | None] = [None] * len(steps)
    own: list[Event] = []
    others: list[Event] = []
    for kernel in trace.kernels:
        at = trace.launched_ns(kernel)
        place = -1 if at is None else bisect_right(starts, at) - 1
        if at is None or place < 0 or at >= last:
            others.append(kernel)
            continue
        own.append(kernel)
        ends[place] = max(ends[place] or kernel.end_ns, kernel.end_ns)
    if not own:
        return ()
    first = min(kernel.start_ns for kernel in own)
    known = [end for end in ends if end is not None]
    before = max((k.end_ns for k in others if k.start_ns < first), default=None)
    begin = min(steps[0].start_ns, first)  # nothing ran before: the first step begins on the host
    if before is not None and begin < before:
        begin = before if before < known[0] else first
    return _following(begin, ends)


def _on_the_host(
    steps: Sequence[Step], transfers: Sequence[Transfer]
) -> tuple[tuple[int, int], ...]:
    """Return start and end of each step where the host computes."""
    ends = [step.end_ns for step in steps]
    for transfer in transfers:
        if transfer.step >= 0:
            ends[transfer.step] = max(ends[transfer.step], transfer.end_ns)
    return _following(min((step.start_ns for step in steps), default=0), ends)


def _following(begin: int, ends: Iterable[int | None]) -> tuple[tuple[int, int], ...]:
    """Return periods without gaps; one whose end is unknown is empty."""
    periods = []
    for end in ends:
        until = begin if end is None else max(begin, end)
        periods.append((begin, until))
        begin = until
    return tuple(periods)


def _transfer(moved: _Moved, step: int) -> Transfer:
    event, message = moved.event, moved.event.message
    named = moved.called if message is None else message.collective
    if not named and moved.around is not None and (found := RANGE.match(moved.around.name)):
        named = found[2]
    function = called(event.name)
    plain = "unknown" if "ccl" in function.lower() else re.split(r"::?", function)[-1]
    return Transfer(
        collective=collective_in(named) or collective_in(function) or plain,
        start_ns=event.start_ns,
        end_ns=event.end_ns,
        asked_ns=moved.asked_ns,
        step=step,
        size_bytes=_size(message, moved.around),
        group="" if message is None else message.group,
    )


def _of_all_ranks(transfer: Transfer, ranks: int) -> Transfer:
    """Return a transfer of the host with the bytes of all ranks; a gather records those of one."""
    if transfer.collective != "all_gather" or transfer.size_bytes is None:
        return transfer
    return replace(transfer, size_bytes=ranks * transfer.size_bytes)


def _size(message: CollectiveRecord | None, around: Event | None) -> int | None:
    """Return the bytes of the larger side, in or out; None if unknown."""
    if message is not None:
        return message.elements * _width(message.dtype) or None
    if around is None or not isinstance(around.dims, list) or not isinstance(around.types, list):
        return None
    sizes = [
        prod(shape) * _width(kind)
        for shape, kind in zip(around.dims, around.types, strict=False)
        if is_shape(shape) and isinstance(kind, str)
    ]
    return max(sizes, default=0) or None


def _width(kind: str) -> int:
    return _BYTES.get(kind.lower().removeprefix("c10::"), 1)


def _step(steps: Sequence[Step], at: int) -> int:
    place = bisect_right(steps, at, key=lambda step: step.start_ns) - 1
    return place if place >= 0 and at < steps[place].end_ns else -1


def _made_ready(
    trace: Trace,
    transfers: Sequence[Transfer],
    asked: Sequence[int],
    launched: Iterable[tuple[Event, int]],
    steps: Sequence[Step],
) -> Iterator[Transfer]:
    """Yield the transfers with when their data was ready, and how many gradients were complete."""
    known = sorted((at, kernel.end_ns) for kernel, at in launched)
    ends = list(accumulate((end for _, end in known), max))

    def ready(moment: int) -> int:
        """Return the time at which everything launched up to a moment has been computed (ns)."""
        place = bisect_right(known, moment, key=itemgetter(0)) - 1
        return moment if place < 0 else max(moment, ends[place])

    gradients = sorted(
        (event.start_ns, size)
        for event in trace.operators
        if event.name == ACCUMULATE and (size := _size(None, event))
    )
    starts = [start for start, _ in gradients]
    place, matching = 0, True
    first: dict[int, tuple[int, int]] = {}
    for at in sorted(range(len(transfers)), key=asked.__getitem__):
        size = transfers[at].size_bytes
        if transfers[at].collective != "all_reduce" or not size or not matching:
            continue
        begin, total = place, 0
        while place < len(gradients) and total < size:
            total += gradients[place][1]
            place += 1
        matching = total == size
        if matching:
            first[at] = gradients[begin][0], gradients[place - 1][0]
    for at, transfer in enumerate(transfers):
        begun, ended = first[at] if matching and at in first else (None, None)
        if trace.device:
            begun, ended = None if begun is None else ready(begun), ready(asked[at])
        behind = None
        if transfer.step >= 0:
            before = bisect_left(starts, steps[transfer.step].start_ns)
            behind = bisect_left(starts, asked[at]) - before
        yield replace(transfer, first_ready_ns=begun, ready_ns=ended, behind=behind)


def _spans(events: Iterable[Event]) -> tuple[tuple[int, int], ...]:
    return merged((event.start_ns, event.end_ns) for event in events)
