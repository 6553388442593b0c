"""Plans as traces for Perfetto or ``chrome://tracing``: one thread per serial resource.

Marks become instant events.

Source: the Trace Event Format; complete events ("ph": "X") with times in microseconds.
"""

import gzip
import json
from pathlib import Path
from typing import Any

from planner.solving.timeline import Timeline
from planner.view.chart import Chart


def save_trace(chart: Chart[Timeline], path: Path) -> None:
    """Write `chart` as a trace, compressed if the name ends in ``.gz``."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": chart.title}}
    ]
    for thread, resource in enumerate(chart.view.resources, start=1):
        named = {"ph": "M", "pid": 1, "tid": thread, "name": "thread_name"}
        events.append({**named, "args": {"name": resource}})
        events += [
            {
                "ph": "X",
                "pid": 1,
                "tid": thread,
                "ts": interval.start_ns / 1000,
                "dur": (interval.end_ns - interval.start_ns) / 1000,
                "name": interval.label if interval.kind != "startup" else "start-up",
                "cat": interval.kind,
                "args": {} if interval.batch < 0 else {"batch": interval.batch + 1},
            }
            for interval in chart.view.on(resource)
            if interval.end_ns > interval.start_ns
        ]
    events += [
        {"ph": "i", "s": "p", "pid": 1, "tid": 1, "ts": mark.time_ns / 1000, "name": mark.label}
        for mark in chart.view.marks
    ]
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
