"""Plans as traces for Perfetto or ``chrome://tracing``: one thread per serial resource.

Windows overlap, so they are pairs of asynchronous events; marks are instants.

Source: the Trace Event Format; complete events ("ph": "X") with times in microseconds.
"""

import gzip
import json
from pathlib import Path
from typing import Any

from planner.solving.timeline import Interval, Timeline, Window
from planner.view.chart import Chart


def save_trace(chart: Chart[Timeline], path: Path) -> None:
    """Write `chart` as a trace, compressed if the name ends in ``.gz``."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": chart.title}}
    ]
    for thread, resource in enumerate(chart.view.resources, start=1):
        name = {
            "ph": "M",
            "pid": 1,
            "tid": thread,
            "name": "thread_name",
            "args": {"name": resource},
        }
        order = {**name, "name": "thread_sort_index", "args": {"sort_index": thread}}
        events += [name, order]
        events += [
            {
                "ph": "X",
                "pid": 1,
                "tid": thread,
                "ts": interval.start_ns / 1000,
                "dur": (interval.end_ns - interval.start_ns) / 1000,
                "name": interval.label if interval.kind != "startup" else "start-up",
                "cat": interval.kind,
                "args": _arguments(interval),
            }
            for interval in chart.view.on(resource)
            if interval.end_ns > interval.start_ns
        ]
    for window in chart.view.windows:
        events += _window_events(window)
    events += [
        {"ph": "i", "s": "p", "pid": 1, "tid": 1, "ts": mark.time_ns / 1000, "name": mark.label}
        for mark in chart.view.marks
    ]
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def _arguments(interval: Interval) -> dict[str, Any]:
    if interval.batch < 0:
        return {"kind": interval.kind}
    return {"batch": interval.batch + 1, "kind": interval.kind}


def _window_events(window: Window) -> list[dict[str, Any]]:
    """Return the two events of a window; empty if it is due before it is ready."""
    common = {
        "cat": "window",
        "id": window.batch + 1,
        "pid": 1,
        "tid": 1,
        "name": f"window of {window.label}",
    }
    end = max(window.ready_ns, window.due_ns)
    return [
        {**common, "ph": "b", "ts": window.ready_ns / 1000, "args": {"batch": window.batch + 1}},
        {**common, "ph": "e", "ts": end / 1000},
    ]
