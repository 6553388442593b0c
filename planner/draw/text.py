"""Gantt charts for a terminal.

Each lane is a line of characters, one for each equal stretch of time: the last digit of the number
of the batch that fills most of it, ``░`` for start-up, ``·`` for idle.
"""

from math import ceil, log10

from planner.draw.chart import Chart
from planner.draw.table import format_table
from planner.timeline import Interval, Timeline
from planner.units import format_ns, unit_of

__all__ = ["text_gantt"]

_MAX_ROWS = 40
"""Longer lists of batches are cut in the middle."""


def text_gantt(chart: Chart, width: int = 80) -> str:
    """Return `chart` as text, `width` characters wide."""
    timeline = chart.timeline
    margin = max(map(len, timeline.resources)) + 2
    columns = max(20, width - margin)
    lines = [chart.title, ""]
    for resource in timeline.resources:
        lane = _lane(timeline.on(resource), timeline.end_ns, columns)
        lines.append(f"{resource:<{margin}}{lane}")
    end = format_ns(timeline.end_ns)
    lines.append(" " * margin + "0" + end.rjust(columns - 1))
    lines += ["", "digits: batches (last digit) · ░ start-up · '·' idle", "", _list(timeline)]
    return "\n".join(lines)


def _lane(intervals: list[Interval], end_ns: int, columns: int) -> str:
    """Return one character a stretch. O(intervals + columns)."""
    filled = [0] * columns
    lane = ["·"] * columns
    if not end_ns:
        return "".join(lane)
    for interval in intervals:
        symbol = "░" if interval.kind == "startup" else str((interval.batch + 1) % 10)
        first = interval.start_ns * columns // end_ns
        last = -(-interval.end_ns * columns // end_ns)
        for column in range(first, min(last, columns)):
            inside = min(interval.end_ns * columns, (column + 1) * end_ns) - max(
                interval.start_ns * columns, column * end_ns
            )
            if inside > filled[column]:
                filled[column], lane[column] = inside, symbol
    return "".join(lane)


def _list(timeline: Timeline) -> str:
    batches: dict[int, list[Interval]] = {}
    for interval in timeline.intervals:
        batches.setdefault(interval.batch, []).append(interval)
    unit, scale = unit_of(timeline.end_ns)
    shortest = min(
        (i.end_ns - i.start_ns for i in timeline.intervals if i.end_ns > i.start_ns), default=1
    )
    # Two digits of the shortest interval, so that no batch looks as if it took no time.
    decimals = min(max(ceil(log10(scale / shortest)) + 1, 1), round(log10(scale)))
    rows = []
    for members in batches.values():
        cells = [members[0].label]
        for resource in timeline.resources:
            own = [interval for interval in members if interval.resource == resource]
            start, end = min(i.start_ns for i in own), max(i.end_ns for i in own)
            cells += [f"{start / scale:.{decimals}f}", f"{end / scale:.{decimals}f}"]
        rows.append(cells)
    if len(rows) > _MAX_ROWS:
        left_out = [f"… {len(rows) - _MAX_ROWS} more …"] + [""] * (len(rows[0]) - 1)
        rows = [*rows[: _MAX_ROWS // 2], left_out, *rows[-_MAX_ROWS // 2 :]]
    header = ["batch"]
    for resource in timeline.resources:
        header += [f"{resource} ({unit})", "until"]
    return format_table(header, rows)
