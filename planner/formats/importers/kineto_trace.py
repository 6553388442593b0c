"""PyTorch profiler traces as typed events: what ran on which thread, and nesting.

The trace is JSON in the Trace Event Format, ``{…, "traceEvents": […], …}``, possibly
compressed; `planner.formats.importers.kineto_events` says what is kept of its events. Profilers
write names unchecked: control characters in strings are read, and bytes that are no UTF-8 become
U+FFFD. On one thread, an event that starts before another has ended belongs to it. A kernel belongs
to the operator during which the runtime call with its correlation number was made.

Complexity: O(events · log events). Source: Google's description of the Trace Event Format.
"""

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from typing import Any

import msgspec

from planner.formats.importers.foreign import foreign_trace
from planner.formats.importers.kineto_events import (
    ACCUMULATE,
    DEVICE,
    READ,
    RUN,
    RUNTIMES,
    Event,
    Kept,
    RawEvent,
)
from planner.model.errors import InvalidInputError
from planner.model.units import counted, format_ns
from planner.model.validation import shown

_HEAD = 1 << 16  # bytes in which a mark of another tool is sought
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_EARLY = "the file ends early: let the profiler finish before the file is copied"
_CONTROL = re.compile(rb"[\x00-\x1f]")


class _Document(msgspec.Struct, frozen=True):
    events: list[RawEvent] = msgspec.field(name="traceEvents")
    devices: Any = msgspec.field(default=None, name="deviceProperties")
    distributed: Any = msgspec.field(default=None, name="distributedInfo")


@dataclass(frozen=True, slots=True)
class Call:
    """An operator that no other operator called."""

    event: Event
    inside: tuple[Event, ...]  # the operator itself and all operators that it called, by start
    kernels: tuple[Event, ...] = ()  # kernels and copies that were started during it


@dataclass(frozen=True, slots=True)
class Trace:
    """A profiler's trace."""

    calls: tuple[Call, ...]  # by start, over all threads
    ranges: tuple[Event, ...]  # of ``record_function``, such as ``ProfilerStep#3``, by start
    kernels: tuple[Event, ...]  # of a device, in the order of the file
    runtime_calls: tuple[Event, ...]  # of a device's runtime, in the order of the file
    launches: Mapping[int | None, Event]  # the runtime call of each correlation number
    processor: str  # name of the device; empty if unknown
    runtime: tuple[str, ...]  # categories with calls of a device's runtime
    unknown: Mapping[str, tuple[Event, ...]]  # by category, such as that of another accelerator
    numbered: int  # events that the profiler numbered
    held: int  # of these, events that the file holds
    backwards: tuple[int, ...]  # positions of events that end before they begin, left out
    rank: int | None  # None if unknown
    ranks: int | None  # of the job
    sha256: str  # of the file

    @property
    def device(self) -> bool:
        """Whether kernels ran on a device."""
        return bool(self.kernels)

    @property
    def operators(self) -> Iterator[Event]:
        """All operators, those that others called included."""
        return (event for call in self.calls for event in call.inside)

    def launched_ns(self, kernel: Event) -> int | None:
        """Return when the host launched a kernel; None if unknown."""
        call = self.launches.get(kernel.correlation)
        return None if call is None else call.start_ns


def read_trace(data: bytes) -> Trace:
    """Return the trace in a file's contents."""
    text = _text(data)
    head = text[:_HEAD]
    try:
        document = _document(text)
        kept = Kept(document.events)
    except InvalidInputError:
        if other := foreign_trace(head):
            raise InvalidInputError("", other) from None
        raise
    devices, distributed = document.devices, document.distributed
    del document, text  # the events as in the file take more room than what is kept of them
    if not kept.by_category["cpu_op"]:
        other = foreign_trace(head)
        raise InvalidInputError("" if other else "traceEvents", other or _no_operators(kept))
    by_category = kept.by_category
    kernels = [event for category in DEVICE for event in by_category.pop(category, ())]
    runtime = {name: by_category.pop(name) for name in list(by_category) if name.endswith(RUNTIMES)}
    operators, ranges = (by_category.pop(name, []) for name in READ[:2])
    first = devices[0] if isinstance(devices, list) and devices else None
    name = first.get("name") if isinstance(first, dict) else None
    started = tuple(chain.from_iterable(runtime.values()))
    return Trace(
        calls=_named_as_today(_nested(operators, started, kernels)),
        ranges=tuple(sorted(ranges, key=lambda event: event.start_ns)),
        kernels=tuple(kernels),
        runtime_calls=started,
        launches={call.correlation: call for call in started if call.correlation is not None},
        processor=name if isinstance(name, str) else "",
        runtime=tuple(runtime),
        unknown={name: tuple(events) for name, events in by_category.items()},
        numbered=kept.numbered,
        held=kept.held,
        backwards=tuple(kept.backwards),
        rank=_whole(distributed, "rank", 0),
        ranks=_whole(distributed, "world_size", 1),
        sha256=sha256(data).hexdigest(),
    )


def _no_operators(kept: Kept) -> str:
    """Return the error of a trace without operators: no recorded CPU, or another tool."""
    others = sorted(category for category, events in kept.by_category.items() if events)
    has = f"it has {', '.join(map(shown, others[:5]))}" if others else "no event has a category"
    return (
        f"expected events of category cpu_op (before torch 1.12: Operator): {has}; give a trace of "
        "torch.profiler, recorded with ProfilerActivity.CPU"
    )


def _text(data: bytes) -> bytes:
    """Return the text of a file, uncompressed."""
    text = data
    if data.startswith(b"\x1f\x8b"):
        unpacking = zlib.decompressobj(wbits=31)
        try:
            text = unpacking.decompress(data)
        except zlib.error as error:
            raise InvalidInputError("", f"not gzip: {error}") from None
        if not unpacking.eof:
            raise InvalidInputError("", f"not gzip: {_EARLY}")
    return text.removeprefix(b"\xef\xbb\xbf")


def _document(text: bytes) -> _Document:
    """Return the document; an error if it is no JSON, or has no array of events."""
    decoder = msgspec.json.Decoder(_Document)
    try:
        try:
            return decoder.decode(text)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            return decoder.decode(_STRING.sub(_mended, text))
    except msgspec.ValidationError as error:
        raise _typed(error) from None
    except msgspec.DecodeError as error:
        what = _EARLY if "truncated" in str(error) else error
        raise InvalidInputError("", f"not JSON: {what}") from None
    except RecursionError:
        raise InvalidInputError("", "not acceptable JSON: nested too deeply") from None


def _mended(string: re.Match[bytes]) -> bytes:
    """Return a string with control characters escaped and invalid UTF-8 replaced."""
    plain = string[0].decode(errors="replace").encode()
    return _CONTROL.sub(lambda match: b"\\u%04x" % match[0][0], plain)


def _typed(error: msgspec.ValidationError) -> InvalidInputError:
    """Return msgspec's error in plain words."""
    message, _, place = str(error).partition(" - at `$.")
    if "missing required field" in message:
        return InvalidInputError("traceEvents", "missing: not a profiler's trace")
    message = (message[:1].lower() + message[1:]).replace("`", "")
    message = message.replace(" | null,", ",")
    if "decimal" in message or "out of range" in message:
        message = "expected a number of microseconds"
    return InvalidInputError(place.rstrip("`"), message)


def _whole(info: Any, field: str, least: int) -> int | None:
    value = info.get(field) if isinstance(info, dict) else None
    return value if type(value) is int and value >= least else None


def _nested(
    operators: Iterable[Event], runtime: Iterable[Event], device: Iterable[Event]
) -> tuple[Call, ...]:
    """Nest operators; one belongs to the outermost on its thread during which it starts.

    So do the kernels and copies that a call of the runtime launches.
    """
    started: dict[int | None, list[Event]] = defaultdict(list)
    for event in device:
        started[event.correlation].append(event)
    rows = [
        *((event, False) for event in operators),
        *((event, True) for event in runtime if event.correlation in started),
    ]
    rows.sort(key=lambda row: (row[0].start_ns, row[1], -row[0].end_ns, row[0].index))
    calls: list[tuple[list[Event], list[Event]]] = []
    last: dict[Any, tuple[list[Event], list[Event]]] = {}
    for event, launches in rows:
        call = last.get(event.thread)
        if call is not None and event.start_ns < call[0][0].end_ns:
            if launches:
                call[1].extend(started[event.correlation])
            else:
                call[0].append(event)
        elif not launches:
            last[event.thread] = ([event], [])
            calls.append(last[event.thread])
    nested = (Call(inside[0], tuple(inside), tuple(kernels)) for inside, kernels in calls)
    return tuple(sorted(nested, key=lambda call: (call.event.start_ns, call.event.index)))


def _named_as_today(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """Return the calls with autograd nodes named ``evaluate_function``, as since torch 1.10.

    Before, nothing enclosed an autograd node.
    """
    if any(event.name.startswith(RUN) for call in calls for event in call.inside):
        return calls
    return tuple(
        replace(call, event=replace(call.event, name=RUN + call.event.name))
        if call.event.name == ACCUMULATE
        or (call.event.forward_thread and call.event.sequence is not None)
        else call
        for call in calls
    )


# ---
# Checks the times of a trace for clock errors.
#
# An event ends after it begins, and a kernel runs after the call that launched it. If a trace
# contradicts this, a clock was set, or the device's differs from the host's.
#
# Complexity: O(events). Source: own.


def clock_remarks(trace: Trace) -> list[str]:
    """Return warnings about impossible times, and what is left out because of them."""
    remarks = []
    if trace.backwards:
        remarks.append(
            f"{counted(len(trace.backwards), 'event')} that end before they begin are left out, "
            f"the first one traceEvents[{trace.backwards[0]}]: the clock ran backwards"
        )
    early = [
        launched - kernel.start_ns
        for kernel in trace.kernels
        if (launched := trace.launched_ns(kernel)) is not None and kernel.start_ns < launched
    ]
    if early:
        remarks.append(
            f"{counted(len(early), 'kernel')} begin before they are launched, up to "
            f"{format_ns(max(early))}: the device's clock is not the host's"
        )
    return remarks
