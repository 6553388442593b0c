"""PyTorch profiler traces as typed events: what ran on which thread, and what inside what.

The trace is JSON in the Trace Event Format, possibly compressed. Only complete events ("ph": "X")
of the operators, of the ranges around them and of the device are looked at; of their arguments only
those that say which autograd node an operator made (``Sequence number``), which call of the runtime
started a kernel (``correlation``), and what went in (``Input Dims``, ``Input type``). The profiler
numbers what the host did (``Ev Idx``): numbers that are missing were taken out, or never written.

Complexity: O(events · log events). Source: Google's description of the Trace Event Format.
"""

import re
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

import msgspec

from planner.errors import InvalidInputError
from planner.formats.kineto_calls import Call, Event, calls_of
from planner.validation import MAX_VALUE, shown

__all__ = ["Trace", "read_trace"]

MAX_TEXT = 1 << 30
"""Longest trace that is read, in bytes without compression."""

_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_READ = ("cpu_op", "user_annotation", "python_function", *_DEVICE)
_RUNTIMES = ("_runtime", "_driver")
"""Ends of categories: calls that start kernels (``cuda_runtime``, ``xpu_driver``)."""
_OTHERS = (
    "Trace",
    "cpu_instant_event",
    "gpu_user_annotation",
    "overhead",
    "cuda_profiler_range",
    "cuda_sync",
    "cuda_event",
    "ac2g",
    "fwdbwd",
    "async_cpu_to_gpu",
    "external_correlation",
)
"""Categories that say nothing of what was computed, and when."""


class _Arguments(msgspec.Struct, frozen=True):
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")
    correlation: Any = None
    dims: Any = msgspec.field(default=None, name="Input Dims")
    types: Any = msgspec.field(default=None, name="Input type")
    number: Any = msgspec.field(default=None, name="Ev Idx")
    older_number: Any = msgspec.field(default=None, name="Profiler Event Index")


class _Event(msgspec.Struct, frozen=True):
    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: int | Decimal | None = None
    dur: int | Decimal | None = None
    args: _Arguments | None = None


class _Trace(msgspec.Struct, frozen=True):
    events: list[_Event] = msgspec.field(name="traceEvents")
    devices: Any = msgspec.field(default=None, name="deviceProperties")


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace.

    Attributes
    ----------
    calls : tuple of Call
        By start, over all threads.
    ranges : tuple of Event
        What ``record_function`` marked, such as ``ProfilerStep#3``, by start.
    device : bool
        Whether kernels ran on a device.
    processor : str
        Name of the device; empty if unknown.
    stacks : bool
        Whether Python functions were recorded.
    runtime : tuple of str
        Categories with calls of a device's runtime.
    unknown : mapping of str to tuple of Event
        Events of categories nobody here knows, such as those of other accelerators.
    numbered, held : int
        How many events the profiler numbered, and how many of those the file holds.
    """

    calls: tuple[Call, ...]
    ranges: tuple[Event, ...]
    device: bool
    processor: str
    stacks: bool
    runtime: tuple[str, ...]
    unknown: Mapping[str, tuple[Event, ...]]
    numbered: int
    held: int


def read_trace(data: bytes) -> Trace:
    """Return the trace in a file.

    Raises
    ------
    InvalidInputError
        If `data` is no such file, or too long; the path leads to the event.
    """
    raw = _decoded(_text(data, MAX_TEXT))
    by_category: dict[str, list[Event]] = defaultdict(list)
    numbers = set()
    for index, raw_event in enumerate(raw.events):
        if raw_event.ph == "X" and raw_event.cat and raw_event.cat not in _OTHERS:
            by_category[raw_event.cat].append(_event(raw_event, index))
        if raw_event.args is not None:
            number = (
                raw_event.args.number
                if raw_event.args.older_number is None
                else raw_event.args.older_number
            )
            if type(number) is int and 0 <= number <= MAX_VALUE:
                numbers.add(number)
    if not by_category["cpu_op"]:
        raise InvalidInputError(
            "traceEvents", "expected events of category cpu_op: record with ProfilerActivity.CPU"
        )
    kernels = [event for category in _DEVICE for event in by_category.pop(category, ())]
    runtime = {
        name: by_category.pop(name) for name in list(by_category) if name.endswith(_RUNTIMES)
    }
    operators, ranges, functions = (by_category.pop(name, []) for name in _READ[:3])
    return Trace(
        calls=calls_of(operators, functions, chain.from_iterable(runtime.values()), kernels),
        ranges=tuple(sorted(ranges, key=lambda event: event.start_ns)),
        device=bool(kernels),
        processor=_name_of(raw.devices),
        stacks=bool(functions),
        runtime=tuple(runtime),
        unknown={name: tuple(events) for name, events in by_category.items()},
        numbered=max(numbers, default=-1) + 1,
        held=len(numbers),
    )


def _text(data: bytes, limit: int) -> bytes:
    """Return what is in a file, uncompressed."""
    too_long = f"expected at most {limit} bytes of text: record fewer steps, or without with_stack"
    if not data.startswith(b"\x1f\x8b"):
        if len(data) > limit:
            raise InvalidInputError("", too_long)
        return data
    unpack = zlib.decompressobj(wbits=31)
    try:
        text = unpack.decompress(data, limit + 1)
    except zlib.error as error:
        raise InvalidInputError("", f"not gzip: {error}") from None
    if len(text) > limit:
        raise InvalidInputError("", too_long)
    if not unpack.eof:
        raise InvalidInputError("", "not gzip: the file ends early")
    return text


def _decoded(text: bytes) -> _Trace:
    try:
        return msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf"), type=_Trace)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        if "missing required field" in message:
            raise InvalidInputError("traceEvents", "missing: not a profiler's trace") from None
        message = re.sub(r"`([^`]*)`", r"\1", message[:1].lower() + message[1:])
        message = message.replace(" | null,", ",").replace("int | decimal", "number")
        if "decimal" in message or "out of range" in message:
            message = "expected a number of microseconds"
        raise InvalidInputError(place.rstrip("`").lstrip("."), message) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError("", f"not JSON: {error}") from None
    except RecursionError:
        raise InvalidInputError("", "not acceptable JSON: nested too deeply") from None


def _event(raw_event: _Event, index: int) -> Event:
    path = f"traceEvents[{index}]"
    start = _ns(raw_event.ts, f"{path}.ts")
    lasts = _ns(raw_event.dur, f"{path}.dur")
    if lasts < 0:
        raise InvalidInputError(
            f"{path}.dur", f"expected a number >= 0, got {shown(raw_event.dur)}"
        )
    read = raw_event.cat in _READ or (raw_event.cat or "").endswith(_RUNTIMES)
    args = (raw_event.args if read else None) or _Arguments()
    return Event(
        name=raw_event.name,
        start_ns=start,
        end_ns=start + lasts,
        thread=(raw_event.pid, raw_event.tid),
        index=index,
        sequence=_number(args.sequence, f"{path}.args.Sequence number"),
        forward_thread=_number(args.forward_thread, f"{path}.args.Fwd thread id") or 0,
        correlation=_number(args.correlation, f"{path}.args.correlation"),
        dims=args.dims,
        types=args.types,
    )


def _ns(value: int | Decimal | None, path: str) -> int:
    """Return microseconds, with decimals, as nanoseconds."""
    if value is None:
        raise InvalidInputError(path, "missing")
    exact = Decimal(value)
    if not exact.is_finite() or abs(exact) > MAX_VALUE // 1000:
        limit = MAX_VALUE // 1000
        raise InvalidInputError(path, f"expected microseconds up to {limit}, got {shown(value)}")
    return int((exact * 1000).to_integral_value())


def _number(value: Any, path: str) -> int | None:
    if value is not None and type(value) is not int:
        raise InvalidInputError(path, f"expected an integer, got {shown(value)}")
    return value


def _name_of(devices: Any) -> str:
    first = devices[0] if isinstance(devices, list) and devices else None
    name = first.get("name") if isinstance(first, dict) else None
    return name if isinstance(name, str) else ""
