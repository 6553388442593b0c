"""PyTorch profiler traces as typed events: what ran on which thread, and nesting.

The trace is JSON in the Trace Event Format, possibly compressed, read piece by piece
(`planner.formats.importers.event_file`). `planner.formats.importers.kineto_events` says what is
kept of its events.

Complexity: O(events · log events). Source: Google's description of the Trace Event Format.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, BinaryIO, NamedTuple

import msgspec

from planner.formats.importers.event_file import EventFile, decoded
from planner.formats.importers.kineto_calls import Call, Event, calls_of, named_as_today
from planner.formats.importers.kineto_events import DEVICE, READ, RUNTIMES, Kept, RawEvent
from planner.model.errors import InvalidInputError
from planner.model.units import counted, format_ns
from planner.model.validation import shown

# ---
# Recognises traces of tools other than PyTorch's profiler, and says what to give instead.
#
# Other tools write the same Trace Event Format. They are recognised by names that only they use, at
# the start of the text: files may lack their end, and some are no valid JSON.
#
# Complexity: O(1), as the start of the text is bounded. Source: horovod/common/timeline.cc;
# plugins/profiler/example of NCCL 2.23 to 2.28; exports of TensorFlow's and JAX's profilers.

_GIVE = (
    "give a trace of torch.profiler, recorded with ProfilerActivity.CPU and, on GPUs, "
    "ProfilerActivity.CUDA (prof.export_chrome_trace)"
)


class _Tool(NamedTuple):
    signs: re.Pattern[bytes]
    says: str


_TOOLS = (
    _Tool(
        re.compile(
            rb'"(NEGOTIATE_(ALLREDUCE|ALLGATHER|BROADCAST|ALLTOALL|REDUCESCATTER|ADASUM)'
            rb"|(MEMCPY_(IN|OUT)|INIT)_FUSION_BUFFER|WAIT_FOR_(OTHER_TENSOR_)?DATA|CYCLE_START"
            rb'|(NCCL|MPI|GLOO|CCL)_(ALLREDUCE|ALLGATHER|BCAST|ALLTOALL|REDUCESCATTER))"'
        ),
        "this is Horovod's timeline (HOROVOD_TIMELINE), not a trace of PyTorch's profiler: it "
        "says when tensors were negotiated and sent, and nothing of computation",
    ),
    _Tool(
        re.compile(
            rb'"cat"\s*:\s*"(GROUP|COLL|P2P|GROUP_API|COLL_API|P2P_API|KERNEL_LAUNCH|PROXY|NET'
            rb'|NET_IB|NET_SOCK|CE_COLL|CE_SYNC|CE_BATCH)"'
        ),
        "this is a trace of NCCL's profiler plugin (NCCL_PROFILER_PLUGIN), not of PyTorch's "
        "profiler: it says what NCCL did, and nothing of computation",
    ),
    _Tool(
        re.compile(
            rb'"/(device|host):[A-Z]+(:\d+)?[" ]|"/job:\w+|"(XLA|TensorFlow) (Ops|Modules)"'
        ),
        "this is a trace of TensorFlow's or JAX's profiler, not of PyTorch's: it lacks the "
        "operators, autograd's nodes and the launches of kernels",
    ),
)


def other_trace(head: bytes) -> str:
    """Return which tool wrote a file and what to give instead; an empty text if it is unknown."""
    for tool in _TOOLS:
        if tool.signs.search(head):
            return f"{tool.says}; {_GIVE}"
    return ""


MAX_TEXT = 1 << 36
"""Longest trace that is read (bytes without compression)."""


class _Outside(msgspec.Struct, frozen=True):
    events: list[RawEvent] = msgspec.field(name="traceEvents")
    devices: Any = msgspec.field(default=None, name="deviceProperties")
    distributed: Any = msgspec.field(default=None, name="distributedInfo")


@dataclass(frozen=True, slots=True)
class Distributed:
    """The rank of a trace and the number of ranks of the job; None if unknown."""

    rank: int | None = None
    ranks: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A profiler's trace.

    Attributes
    ----------
    calls : tuple of Call
        By start, over all threads.
    ranges : tuple of Event
        Ranges of ``record_function``, such as ``ProfilerStep#3``, by start.
    kernels : tuple of Event
        Device events, in the order of the file.
    runtime_calls : tuple of Event
        Calls of a device's runtime, in the order of the file.
    processor : str
        Name of the device; empty if unknown.
    stacks : bool
        Whether Python functions were recorded.
    runtime : tuple of str
        Categories with calls of a device's runtime.
    unknown : mapping of str to tuple of Event
        Events of unknown categories, such as those of other accelerators.
    numbered, held : int
        Number of events that the profiler numbered, and of those that the file holds.
    backwards : tuple of int
        Positions of events that end before they begin; they are left out.
    distributed : Distributed
        The rank and the number of ranks.
    sha256 : str
        Hash of the file.
    """

    calls: tuple[Call, ...]
    ranges: tuple[Event, ...]
    kernels: tuple[Event, ...]
    runtime_calls: tuple[Event, ...]
    processor: str
    stacks: bool
    runtime: tuple[str, ...]
    unknown: Mapping[str, tuple[Event, ...]]
    numbered: int
    held: int
    backwards: tuple[int, ...]
    distributed: Distributed
    sha256: str

    @property
    def device(self) -> bool:
        """Whether kernels ran on a device."""
        return bool(self.kernels)


def read_trace(source: bytes | BinaryIO, *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the trace in a file; `progress` is called with the bytes read so far."""
    file = EventFile(source, RawEvent, limit=MAX_TEXT, progress=progress)
    kept = Kept()
    try:
        for batch in file.batches():
            kept.add(batch)
        outside = _outside(file.outside)
    except InvalidInputError:
        if not kept.by_category["cpu_op"] and (other := other_trace(file.head)):
            raise InvalidInputError("", other) from None
        raise
    if not kept.by_category["cpu_op"]:
        other = other_trace(file.head)
        raise InvalidInputError("" if other else "traceEvents", other or _no_operators(kept))
    by_category = kept.by_category
    kernels = [event for category in DEVICE for event in by_category.pop(category, ())]
    runtime = {name: by_category.pop(name) for name in list(by_category) if name.endswith(RUNTIMES)}
    operators, ranges, functions = (by_category.pop(name, []) for name in READ[:3])
    started = tuple(chain.from_iterable(runtime.values()))
    return Trace(
        calls=named_as_today(calls_of(operators, functions, started, kernels)),
        ranges=tuple(sorted(ranges, key=lambda event: event.start_ns)),
        kernels=tuple(kernels),
        runtime_calls=started,
        processor=_name_of(outside.devices),
        stacks=kept.stacks,
        runtime=tuple(runtime),
        unknown={name: tuple(events) for name, events in by_category.items()},
        numbered=kept.last_number + 1,
        held=kept.held,
        backwards=tuple(kept.backwards),
        distributed=_distributed(outside.distributed),
        sha256=file.sha256,
    )


def _no_operators(kept: Kept) -> str:
    """Return the error of a trace without operators: no recorded CPU, or another tool."""
    what = "expected events of category cpu_op (before torch 1.12: Operator)"
    others = sorted(category for category, events in kept.by_category.items() if events)
    if any(name in DEVICE or name.endswith(RUNTIMES) for name in others):
        return f"{what}: record with ProfilerActivity.CPU"
    has = f"it has {', '.join(map(shown, others[:5]))}" if others else "no event has a category"
    return f"{what}: {has}; give a trace of torch.profiler, recorded with ProfilerActivity.CPU"


def _outside(text: bytes) -> _Outside:
    """Return the document without its events; an error if it has no array of events."""
    try:
        return decoded(msgspec.json.Decoder(_Outside), text)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        if "missing required field" in message:
            raise InvalidInputError("traceEvents", "missing: not a profiler's trace") from None
        message = re.sub(r"`([^`]*)`", r"\1", message[:1].lower() + message[1:])
        raise InvalidInputError(place.rstrip("`").lstrip("."), message) from None
    except msgspec.DecodeError as error:
        raise InvalidInputError("", f"not JSON: {error}") from None
    except RecursionError:
        raise InvalidInputError("", "not acceptable JSON: nested too deeply") from None


def _name_of(devices: Any) -> str:
    first = devices[0] if isinstance(devices, list) and devices else None
    name = first.get("name") if isinstance(first, dict) else None
    return name if isinstance(name, str) else ""


def _distributed(info: Any) -> Distributed:
    if not isinstance(info, dict):
        return Distributed()
    rank, ranks = info.get("rank"), info.get("world_size")
    return Distributed(
        rank if type(rank) is int and rank >= 0 else None,
        ranks if type(ranks) is int and ranks > 0 else None,
    )


# ---
# Checks the times of a trace for clock errors.
#
# An event ends after it begins, a step after the one before, and a kernel runs after the call that
# launched it. If a trace contradicts this, a clock was set, or the device's differs from the
# host's.
#
# Complexity: O(events + steps · log steps). Source: own.

_STEP = re.compile(r"ProfilerStep#(\d+)")


def clock_remarks(trace: Trace) -> list[str]:
    """Return warnings about impossible times, and what is left out because of them."""
    remarks = []
    if trace.backwards:
        remarks.append(
            f"{counted(len(trace.backwards), 'event')} that end before they begin are left out, "
            f"the first one traceEvents[{trace.backwards[0]}]: the clock ran backwards"
        )
    numbered = sorted(
        (int(found[1]), mark.start_ns, mark.end_ns)
        for mark in trace.ranges
        if (found := _STEP.match(mark.name))
    )
    crossed = [after[0] for before, after in pairwise(numbered) if after[1] < before[2] - 1000]
    if crossed:
        remarks.append(
            f"{counted(len(crossed), 'step')} begin before the one before has ended, first step "
            f"{crossed[0]}: the clock ran backwards, or files of several ranks were joined"
        )
    called = {
        call.correlation: call.start_ns
        for call in trace.runtime_calls
        if call.correlation is not None
    }
    early = [
        called[kernel.correlation] - kernel.start_ns
        for kernel in trace.kernels
        if kernel.correlation in called and kernel.start_ns < called[kernel.correlation]
    ]
    if early:
        remarks.append(
            f"{counted(len(early), 'kernel')} begin before they are launched, up to "
            f"{format_ns(max(early))}: the device's clock is not the host's"
        )
    return remarks
