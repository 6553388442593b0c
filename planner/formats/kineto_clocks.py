"""Checks the times of a trace for clock errors.

An event ends after it begins, a step after the one before, and a kernel runs after the call that
launched it. If a trace contradicts this, a clock was set, or the device's differs from the host's.

Complexity: O(events + steps · log steps). Source: own.
"""

import re
from itertools import pairwise

from planner.formats.kineto_trace import Trace
from planner.units import counted, format_ns

__all__ = ["clock_remarks"]

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
