"""Nests the events of a trace: operators, the modules around them, the kernels they started.

On one thread, an event that starts before another has ended belongs to it. A kernel belongs to the
operator during which the runtime call with its correlation number was made. Before torch 1.10
nothing enclosed an autograd node; such nodes are renamed here to
``autograd::engine::evaluate_function: NODE``, so that all readers find them.

Complexity: O(events · log events). Source: own.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.formats.importers.kineto_shapes import Inputs

_MODULE = "nn.Module: "
_RUN = "autograd::engine::evaluate_function: "
_ACCUMULATE = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """A collective's description of itself; None or empty where unknown.

    `elements_in` and `elements_out` count the elements on one rank; `collective` is a name such as
    ``allreduce``.
    """

    collective: str
    elements_in: int | None
    elements_out: int | None
    dtype: str
    group: str
    group_size: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a trace.

    Attributes
    ----------
    name : str
        Its name.
    start_ns, end_ns : int
        Start and end.
    thread : tuple
        Process and thread, or device and stream.
    index : int
        Position in the file.
    sequence : int or None
        Number of the autograd node that runs, or of the next one to be made.
    forward_thread : int
        The thread whose nodes `sequence` counts, if a node runs; else 0.
    correlation : int or None
        Number shared by a kernel and the call that started it.
    dims, types : object
        Shapes and types of the inputs of gradients and messages, as in the file.
    message : CollectiveRecord or None
        The collective's description, if there is one.
    inputs : Inputs or None
        Inputs of an operator that may be a layer.
    """

    name: str
    start_ns: int
    end_ns: int
    thread: tuple[int | str | None, int | str | None]
    index: int
    sequence: int | None
    forward_thread: int
    correlation: int | None
    dims: Any
    types: Any
    message: CollectiveRecord | None = None
    inputs: Inputs | None = None

    @property
    def path(self) -> str:
        """Its place in the file."""
        return f"traceEvents[{self.index}]"


@dataclass(frozen=True, slots=True)
class Call:
    """An operator that no other operator called.

    `module` is the module around it, such as ``Linear_0``, empty if unknown; `inside` holds the
    operator itself and all operators that it called, by start; `kernels` the kernels and copies
    that were started during it.
    """

    event: Event
    module: str
    inside: tuple[Event, ...]
    kernels: tuple[Event, ...] = ()


def calls_of(
    operators: Iterable[Event],
    functions: Iterable[Event],
    runtime: Iterable[Event],
    device: Iterable[Event],
) -> tuple[Call, ...]:
    """Return the operators that no other operator called, by start, with what they started.

    `runtime` are calls of the device's runtime, `device` the kernels and copies that these started.
    """
    modules = [function for function in functions if function.name.startswith(_MODULE)]
    return _with_kernels(_nested(operators, modules), runtime, device)


def _nested(operators: Iterable[Event], modules: Iterable[Event]) -> list[Call]:
    """Nest operators and modules; an event belongs to the one on its thread it starts in."""
    threads: dict[Any, list[tuple[Event, bool]]] = defaultdict(list)
    for event in operators:
        threads[event.thread].append((event, True))
    for event in modules:
        threads[event.thread].append((event, False))
    calls: list[Call] = []
    for members in threads.values():
        members.sort(key=lambda member: (member[0].start_ns, -member[0].end_ns, member[0].index))
        around: list[Event] = []  # modules
        root, module, inside = None, "", list[Event]()
        for event, operates in members:
            if root is not None and operates and event.start_ns < root.end_ns:
                inside.append(event)
                continue
            while around and around[-1].end_ns <= event.start_ns:
                around.pop()
            if not operates:
                around.append(event)
                continue
            if root is not None:
                calls.append(Call(root, module, tuple(inside)))
            root, inside = event, [event]
            module = around[-1].name.removeprefix(_MODULE) if around else ""
        if root is not None:
            calls.append(Call(root, module, tuple(inside)))
    return sorted(calls, key=lambda call: (call.event.start_ns, call.event.index))


def _with_kernels(
    calls: Sequence[Call], runtime: Iterable[Event], device: Iterable[Event]
) -> tuple[Call, ...]:
    """Return the calls with the kernels and copies that they started."""
    started: dict[int | None, list[Event]] = defaultdict(list)
    for event in device:
        started[event.correlation].append(event)
    threads: dict[Any, list[int]] = defaultdict(list)
    for place, call in enumerate(calls):
        threads[call.event.thread].append(place)
    begins = {
        thread: [calls[place].event.start_ns for place in places]
        for thread, places in threads.items()
    }
    kernels: dict[int, list[Event]] = defaultdict(list)
    for event in runtime:
        if event.correlation not in started or event.thread not in begins:
            continue
        before = bisect_right(begins[event.thread], event.start_ns) - 1
        place = threads[event.thread][before]
        if before >= 0 and event.start_ns < calls[place].event.end_ns:
            kernels[place] += started[event.correlation]
    return tuple(
        replace(call, kernels=tuple(kernels[place])) if place in kernels else call
        for place, call in enumerate(calls)
    )


def named_as_today(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """Return the calls with autograd nodes named ``evaluate_function``, as since torch 1.10."""
    if any(event.name.startswith(_RUN) for call in calls for event in call.inside):
        return calls
    return tuple(
        replace(call, event=replace(call.event, name=_RUN + call.event.name))
        if call.event.name == _ACCUMULATE
        or (call.event.forward_thread and call.event.sequence is not None)
        else call
        for call in calls
    )
