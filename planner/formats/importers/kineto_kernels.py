"""Classifies the kernels of a trace: transfer, copy or computation, and doubtful ones.

Method: a kernel is a transfer if a library is known by its name, or if the profiler calls it a
collective, in its arguments or by the operator that launched it. `in_doubt` lists others that may
be; the user can say which are.

Complexity: O(events). Source: own; Kineto as of PyTorch 2.13.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from planner.formats.importers.communication_kernels import called, computes, library_of, might_send
from planner.formats.importers.kineto_calls import Event
from planner.formats.importers.kineto_trace import Trace
from planner.traces.recorded import Kernels

_COPIES = re.compile(r"(hip)?mem(cpy|set)|copy(host|device|buffer)|fillbuffer", re.IGNORECASE)
_SENDING = re.compile(
    r"(c10d|_c10d_functional\w*|symm_mem)::|record_param_comms"
    r"|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|deep_?ep|nvshmem",
    re.IGNORECASE,
)
"""Names of operators that send."""


def told_apart(
    ran: Sequence[Event], inside: Mapping[int, str], transfers: re.Pattern[str] | None
) -> tuple[list[Event], list[Event], list[Event]]:
    """Return the kernels that send, those that copy, and those that compute."""
    sends, copies, kernels = list[Event](), list[Event](), list[Event]()
    for kernel in ran:
        copied = _COPIES.match(kernel.name)
        asked = transfers is not None and transfers.search(kernel.name)
        told = not copied and (
            kernel.message is not None
            or (inside.get(kernel.index) == "record_param_comms" and not computes(kernel.name))
        )
        if asked or told or library_of(kernel.name):
            sends.append(kernel)
        else:
            (copies if copied else kernels).append(kernel)
    return sends, copies, kernels


def launched_by_sending(trace: Trace, calls: Mapping[int | None, Event]) -> dict[int, str]:
    """Return the kernels that a sending operator launched itself: position to operator name."""
    operators = {}
    for call in trace.calls:
        if not any(_SENDING.search(event.name) for event in call.inside):
            continue
        for kernel in call.kernels:
            if (launch := calls.get(kernel.correlation)) is None:
                continue
            at = launch.start_ns
            around = [event for event in call.inside if event.start_ns <= at < event.end_ns]
            if around and _SENDING.search(around[-1].name):
                operators[kernel.index] = around[-1].name
    return operators


def has_several(trace: Trace, *, sent: bool) -> bool:
    """Return whether the trace shows a job of more than one rank."""
    ranks = trace.distributed.ranks
    if ranks is not None:
        return ranks > 1
    return sent or any(
        event.name.startswith(("c10d::", "_c10d_functional", "record_param_comms", "symm_mem::"))
        for call in trace.calls
        for event in call.inside
    )


def in_doubt(kernels: Sequence[Event], inside: Mapping[int, str], *, sent: bool) -> list[Event]:
    """Return the kernels that may be transfers.

    That is, not known to compute, and: a word of communication in the name, launched by an operator
    that sends, or a stream without computation. If there are none and no transfer is known: all
    kernels that are not known to compute.
    """
    computing = {kernel.thread for kernel in kernels if computes(kernel.name)}
    unknown = [kernel for kernel in kernels if not computes(kernel.name)]
    doubtful = [
        kernel
        for kernel in unknown
        if might_send(kernel.name) or kernel.index in inside or kernel.thread not in computing
    ]
    return doubtful or ([] if sent else unknown)


def by_name(kernels: Iterable[Event]) -> tuple[Kernels, ...]:
    """Return number and total time of the kernels of each name, the longest first."""
    times: dict[str, list[Event]] = defaultdict(list)
    for kernel in kernels:
        times[called(kernel.name)].append(kernel)
    rows = [
        Kernels(
            name,
            library_of(group[0].name),
            len(group),
            sum(kernel.end_ns - kernel.start_ns for kernel in group),
        )
        for name, group in times.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name)))
