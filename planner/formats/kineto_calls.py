"""What ran inside what: operators, the modules around them, the kernels they started.

On one thread, what starts before another event has ended belongs to it. A kernel belongs to the
operator during which the runtime's call that started it was made; the two have one number.

Before torch 1.10 nothing stood around an autograd node. Such nodes are wrapped here, so that every
reader finds them as ``autograd::engine::evaluate_function: NODE``.

Complexity: O(events · log events). Source: own.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.formats.kineto_shapes import Inputs

__all__ = ["Call", "CollectiveRecord", "Event", "calls_of", "named_as_today"]

_MODULE = "nn.Module: "
_RUN = "autograd::engine::evaluate_function: "
_ACCUMULATE = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """What a collective says of itself (None or empty: nothing).

    Attributes
    ----------
    collective : str
        Such as ``allreduce``.
    elements_in, elements_out : int or None
        Numbers that go in and come out, on one rank.
    dtype : str
        What kind of numbers.
    group : str
        Name of the process group.
    group_size : int or None
        How many ranks it has.
    """

    collective: str
    elements_in: int | None
    elements_out: int | None
    dtype: str
    group: str
    group_size: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes
    ----------
    name : str
        Its name.
    start_ns, end_ns : int
        When it ran.
    thread : tuple
        Process and thread, or device and stream.
    index : int
        Position in the file.
    sequence : int or None
        Number of the autograd node: of the one that runs, or of the next one to be made.
    forward_thread : int
        The thread whose nodes `sequence` counts, if a node runs; else 0.
    correlation : int or None
        Number of the call that started a kernel, for both of them.
    dims, types : object
        Shapes and types of the inputs, as the file has them, of gradients and messages.
    message : CollectiveRecord or None
        What it moves between ranks, if it says so.
    inputs : Inputs or None
        What goes into an operator that may be a layer.
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
        """Where it stands in the file."""
        return f"traceEvents[{self.index}]"


@dataclass(frozen=True, slots=True)
class Call:
    """An operator that no other operator called.

    Attributes
    ----------
    event : Event
        Its event.
    module : str
        The module around it, such as ``Linear_0``; empty if the trace has no modules.
    inside : tuple of Event
        Itself and all operators it called, by start.
    kernels : tuple of Event
        Kernels and copies that were started during it, on a device.
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
    """Return the operators that no other operator called, by start.

    Parameters
    ----------
    operators, functions, runtime, device : iterable of Event
        Operators, Python functions, calls of the device's runtime, and what these started.
    """
    modules = [function for function in functions if function.name.startswith(_MODULE)]
    return _with_kernels(_nested(operators, modules), runtime, device)


def _nested(operators: Iterable[Event], modules: Iterable[Event]) -> list[Call]:
    """Nest operators and modules: on one thread, what starts inside another belongs to it."""
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
    """Return the calls with what they started on a device."""
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
    """Return calls whose autograd nodes stand in ``evaluate_function``, as since torch 1.10."""
    if any(event.name.startswith(_RUN) for call in calls for event in call.inside):
        return calls
    return tuple(
        replace(call, event=replace(call.event, name=_RUN + call.event.name))
        if call.event.name == _ACCUMULATE
        or (call.event.forward_thread and call.event.sequence is not None)
        else call
        for call in calls
    )
