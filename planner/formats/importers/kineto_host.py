"""Collectives on the host, over gloo or MPI: when they were called for, and what waited for them.

Problem: a range such as ``gloo:all_reduce`` says when a thread of the library ran a collective, not
which call asked for it, and threads may start neighbours in swapped order; gloo's reduce-scatter
runs an all-reduce. Method: each collective belongs to the earliest call of its kind and size that
has none yet. An operator waited for a collective if it called for the collective, ended after it,
and its thread ran nothing else until then. Hooks of DeepSpeed's ZeRO wait so.
Guarantee: exact if equal collectives start in the order of their calls.
Complexity: O(events · log events). Source: own; ranges as of PyTorch 2.13.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple

from planner.formats.importers.kineto_events import Event
from planner.formats.importers.kineto_trace import Trace
from planner.traces.recorded import Spans, merged

RANGE = re.compile(r"(nccl|gloo|mpi|ucc|xccl):_?(\w+)")
"""Names of the ranges of collectives."""

_CALL = "c10d::"

_COLLECTIVES = {
    "crossdevicereduce": "all_reduce",
    "quickreduce": "all_reduce",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
    "reduce": "reduce",
    "send": "send_recv",
    "recv": "send_recv",
}


def collective_in(name: str) -> str:
    """Return the collective that a name contains; empty if none."""
    plain = name.lower().replace("_", "")
    return next((known for part, known in _COLLECTIVES.items() if part in plain), "")


class Collective(NamedTuple):
    """One collective on the host."""

    mark: Event  # when it ran
    asked_ns: int  # when it was called for; its start if the call is unknown
    name: str  # what was called for, such as ``all_reduce``


def called_for(trace: Trace) -> Iterator[Collective]:
    """Yield the collectives of a trace's host, by start."""
    calls: dict[tuple[str, int], deque[Event]] = defaultdict(deque)
    every = (each for each in trace.operators if each.name.startswith(_CALL))
    for call in sorted(every, key=attrgetter("start_ns")):
        calls[_kind(call)].append(call)
    for mark in trace.ranges:
        if RANGE.match(mark.name):
            own = calls[_kind(mark)]
            call = own.popleft() if own and own[0].start_ns <= mark.start_ns else mark
            yield Collective(mark, call.start_ns, collective_in(call.name))


def _kind(event: Event) -> tuple[str, int]:
    """Return the kind of a call or a range, and its elements; they are equal for both."""
    name = collective_in(event.name)
    sides = [size for size in _elements(event.dims) if size] or [0]
    if name == "all_gather":  # the range says a rank's share
        return name, min(sides)
    return ("sum" if name in ("all_reduce", "reduce_scatter") else name), max(sides)


def waited_inside(trace: Trace) -> Spans:
    """Return when operators of the host waited for collectives that they had called."""
    ends = {each.asked_ns: each.mark.end_ns for each in called_for(trace)}
    waits = []
    for call in trace.calls:
        for place, event in enumerate(call.inside):
            end = ends.get(event.start_ns)
            if end is None or not place or not event.name.startswith(_CALL):
                continue
            starts = (call.inside[at].start_ns for at in range(place, len(call.inside)))
            behind = (start for start in starts if start > event.end_ns)
            if end <= min(call.event.end_ns, next(behind, end)):
                waits.append((event.start_ns, end))
    return merged(waits)


def is_shape(shape: Any) -> bool:
    """Return whether this is the shape of a tensor of at least one dimension."""
    return (
        isinstance(shape, list)
        and bool(shape)
        and all(type(length) is int and length >= 0 for length in shape)
    )


def _elements(dims: Any) -> Iterator[int]:
    """Yield the number of elements of each input, a tensor or a list of tensors; 0 if unknown."""
    for each in dims if isinstance(dims, list) else ():
        shapes = [each] if is_shape(each) else each if isinstance(each, list) else ()
        yield sum(prod(shape) for shape in shapes if is_shape(shape))
