"""Reduces the events of a profiler's trace to names, times and a few arguments.

Kept are complete events ("ph": "X") of operators, of the ranges around them and of the device. Kept
arguments say which autograd node an operator made (``Sequence number``), which runtime call started
a kernel (``correlation``), what a collective moved, and the inputs of gradients and messages
(``Input Dims``, ``Input type``). The profiler numbers host events (``Ev Idx``); missing
numbers were removed, or never written. Categories of traces before torch 1.12 are mapped to today's
names.

Complexity: O(events). Source: Kineto and torch/csrc/profiler as of PyTorch 2.13 and 1.9.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_VALUE, shown

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
READ = ("cpu_op", "user_annotation", *DEVICE)
RUNTIMES = ("_runtime", "_driver")
"""Suffixes of categories of calls that start kernels (``cuda_runtime``, ``xpu_driver``)."""
RUN = "autograd::engine::evaluate_function: "
ACCUMULATE = "torch::autograd::AccumulateGrad"
STEP = "ProfilerStep#"
"""Starts of names: of autograd nodes, of completed gradients and of steps."""

_SHAPED = (
    ACCUMULATE,
    "record_param_comms",
    *("c10d::", "nccl:", "gloo:", "mpi:", "ucc:", "xccl:"),
)
"""Prefixes of names of events whose inputs are gradients or messages."""
_OTHERS = (
    "Trace", "python_function", "cpu_instant_event", "gpu_user_annotation", "overhead", "ac2g",
    "fwdbwd", "cuda_profiler_range", "cuda_sync", "cuda_event", "async_cpu_to_gpu",
    "external_correlation",
)  # fmt: skip
"""Categories without information about computation."""
_OLDER = {
    "Operator": "cpu_op",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
}
"""Categories before torch 1.12, and their names since."""
_RANGE = re.compile(
    r"ProfilerStep#|Optimizer\.|enumerate\(DataLoader\)|DistributedDataParallel\.|(nccl|gloo|mpi|ucc):(?!:)"
)
"""Prefixes of ranges that torch before 1.12 recorded as operators."""


@dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """A collective's description of itself; empty where unknown."""

    collective: str  # such as ``allreduce``
    elements: int  # on one rank, of the larger side, in or out; 0 if unknown
    dtype: str
    group: str


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a trace."""

    name: str
    start_ns: int
    end_ns: int
    thread: tuple[int | str | None, int | str | None]  # process and thread, or device and stream
    index: int  # position in the file
    sequence: int | None  # number of the autograd node that runs, or of the next one to be made
    forward_thread: int  # the thread whose nodes `sequence` counts, if a node runs; else 0
    correlation: int | None  # number shared by a kernel and the call that started it
    dims: Any  # shapes and types of the inputs of gradients and messages, as in the file
    types: Any
    message: CollectiveRecord | None = None

    @property
    def path(self) -> str:
        """Its place in the file."""
        return f"traceEvents[{self.index}]"


class _Arguments(msgspec.Struct, frozen=True, gc=False):
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")
    correlation: Any = None
    dims: Any = msgspec.field(default=None, name="Input Dims")
    types: Any = msgspec.field(default=None, name="Input type")
    number: Any = msgspec.field(default=None, name="Ev Idx")
    older_number: Any = msgspec.field(default=None, name="Profiler Event Index")
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    dtype: Any = None


class RawEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as in the file."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: int | Decimal | None = None
    dur: int | Decimal | None = None
    args: _Arguments | None = None


class Kept:
    """The events that are kept, by category; equal texts are stored once."""

    def __init__(self, events: Iterable[RawEvent]) -> None:
        self.by_category: dict[str, list[Event]] = defaultdict(list)
        self.backwards: list[int] = []
        self._seen: dict[Any, Any] = {}
        numbers = set[int]()
        for index, raw in enumerate(events):
            if raw.ph == "X" and raw.cat and raw.cat not in _OTHERS:
                self._keep(raw, _category(raw), index)
            if raw.args is not None:
                number = raw.args.older_number
                number = raw.args.number if number is None else number
                if type(number) is int and 0 <= number <= MAX_VALUE:
                    numbers.add(number)
        self.held, self.numbered = len(numbers), max(numbers, default=-1) + 1

    def _keep(self, raw: RawEvent, category: str, index: int) -> None:
        path = f"traceEvents[{index}]"
        start, lasts = _ns(raw.ts, path, "ts"), _ns(raw.dur, path, "dur")
        if lasts < 0:
            self.backwards.append(index)
            return
        read = category in READ or category.endswith(RUNTIMES)
        args = (raw.args if read else None) or _NOTHING
        shaped = category not in DEVICE and raw.name.startswith(_SHAPED)
        thread = (raw.pid, raw.tid)
        self.by_category[category].append(
            Event(
                name=self._seen.setdefault(raw.name, raw.name),
                start_ns=start,
                end_ns=start + lasts,
                thread=self._seen.setdefault(thread, thread),
                index=index,
                sequence=_number(args.sequence, path, "Sequence number"),
                forward_thread=_number(args.forward_thread, path, "Fwd thread id") or 0,
                correlation=_number(args.correlation, path, "correlation"),
                dims=args.dims if shaped else None,
                types=args.types if shaped else None,
                message=None if args.collective is None else _message(args),
            )
        )


_NOTHING = _Arguments()


def _category(raw: RawEvent) -> str:
    """Return the category of an event by today's names."""
    category = _OLDER.get(raw.cat or "", raw.cat or "")
    if category != "cpu_op":
        return category
    # A user's range has no namespace, no inputs and no autograd number.
    unnamed = raw.cat == "Operator" and "::" not in raw.name and "Backward" not in raw.name
    args = raw.args or _NOTHING
    named = unnamed and not args.dims and args.sequence is None
    return "user_annotation" if named or _RANGE.match(raw.name) else category


def _message(args: _Arguments) -> CollectiveRecord:
    """Return a collective's description of itself; unexpected values count as unknown."""

    def whole(value: Any) -> int:
        return value if type(value) is int and 0 <= value <= MAX_VALUE else 0

    return CollectiveRecord(
        collective=str(args.collective),
        elements=max(whole(args.elements_in), whole(args.elements_out)),
        dtype=str(args.dtype or ""),
        group=str(args.group or ""),
    )


def _ns(value: int | Decimal | None, path: str, field: str) -> int:
    """Return microseconds, with decimals, as nanoseconds."""
    if value is None:
        raise InvalidInputError(f"{path}.{field}", "missing")
    if type(value) is int and abs(value) <= MAX_VALUE // 1000:
        return value * 1000
    exact = Decimal(value)
    if not exact.is_finite() or abs(exact) > MAX_VALUE // 1000:
        limit = MAX_VALUE // 1000
        raise InvalidInputError(
            f"{path}.{field}", f"expected microseconds up to {limit}, got {shown(value)}"
        )
    return int((exact * 1000).to_integral_value())


def _number(value: Any, path: str, field: str) -> int | None:
    if value is not None and type(value) is not int:
        raise InvalidInputError(f"{path}.args.{field}", f"expected an integer, got {shown(value)}")
    return value
