"""Plans as traces for Perfetto or ``chrome://tracing``: one thread a serial resource.

Source: the Trace Event Format; complete events ("ph": "X") with times in microseconds.
"""

import gzip
import json
from pathlib import Path
from typing import Any

from planner.draw.chart import Chart

__all__ = ["save_trace"]


def save_trace(chart: Chart, path: Path) -> None:
    """Write `chart` as a trace, compressed if the name ends in ``.gz``."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": chart.title}}
    ]
    for thread, resource in enumerate(chart.timeline.resources, start=1):
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
                "args": {"batch": interval.batch + 1, "kind": interval.kind},
            }
            for interval in chart.timeline.on(resource)
            if interval.end_ns > interval.start_ns
        ]
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
