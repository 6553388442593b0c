"""Gantt charts for a terminal.

Each lane is a line of characters, one per equal stretch of time. A character is the last digit of
the batch that fills most of the stretch, ``░`` for start-up, ``·`` for idle, or ``b`` and ``f`` for
ops of the backward and the forward pass.
"""

from math import ceil, log10

from planner.model.layers import module_range
from planner.model.units import format_ns, printable, unit_of
from planner.solving.timeline import Interval, Mark, Timeline, Window
from planner.view.chart import Chart
from planner.view.table import cut, format_table

_TIMES_WIDTH = 52
"""Usual width of a transfer's times (characters)."""
_MIN_LABEL, _MIN_NAME = 32, 26


def text_gantt(chart: Chart[Timeline], width: int = 80) -> str:
    """Return `chart` as text, `width` characters wide."""
    timeline = chart.view
    margin = max(map(len, timeline.resources)) + 2
    columns = max(20, width - margin)
    lines = [chart.title, ""]
    for resource in timeline.resources:
        lane = _lane(timeline.on(resource), timeline.end_ns, columns)
        lines.append(f"{resource:<{margin}}{lane}")
    lines += [" " * margin + _mark(mark, timeline.end_ns, columns) for mark in timeline.marks]
    end = format_ns(timeline.end_ns)
    lines.append(" " * margin + "0" + end.rjust(columns - 1))
    if timeline.windows:
        legend = "b backward · f forward · digits: transfers (last digit)"
        listed = _list_of_windows(timeline, width)
    else:
        legend, listed = "digits: batches (last digit)", _list(timeline)
    if any(interval.kind == "startup" for interval in timeline.intervals):
        legend += " · ░ start-up"
    lines += ["", f"{legend} · '·' idle", "", listed]
    return "\n".join(lines)


def _mark(mark: Mark, end_ns: int, columns: int) -> str:
    """Return a row that points at a moment and names it."""
    column = min(mark.time_ns * columns // end_ns, columns - 1) if end_ns else 0
    text = f"{mark.label} ({format_ns(mark.time_ns)})"
    if column >= len(text) + 1 and column > columns // 2:
        return f"{text} |".rjust(column + 1)
    return f"{' ' * column}| {text}"


def _lane(intervals: list[Interval], end_ns: int, columns: int) -> str:
    """Return one character per stretch; O(intervals + columns)."""
    filled = [0] * columns
    lane = ["·"] * columns
    if not end_ns:
        return "".join(lane)
    for interval in intervals:
        symbol = _symbol(interval)
        first = interval.start_ns * columns // end_ns
        last = -(-interval.end_ns * columns // end_ns)
        for column in range(first, min(last, columns)):
            inside = min(interval.end_ns * columns, (column + 1) * end_ns) - max(
                interval.start_ns * columns, column * end_ns
            )
            if inside > filled[column]:
                filled[column], lane[column] = inside, symbol
    return "".join(lane)


def _symbol(interval: Interval) -> str:
    if interval.kind == "startup":
        return "░"
    return interval.kind[0] if interval.batch < 0 else str((interval.batch + 1) % 10)


def _list(timeline: Timeline) -> str:
    batches: dict[int, list[Interval]] = {}
    for interval in timeline.intervals:
        batches.setdefault(interval.batch, []).append(interval)
    unit, scale = unit_of(timeline.end_ns)
    decimals = _decimals([i.end_ns - i.start_ns for i in timeline.intervals], scale)
    rows = []
    for members in batches.values():
        cells = [printable(members[0].label)]
        for resource in timeline.resources:
            own = [interval for interval in members if interval.resource == resource]
            if not own:
                cells += ["–", "–"]
                continue
            start, end = min(i.start_ns for i in own), max(i.end_ns for i in own)
            cells += [f"{start / scale:.{decimals}f}", f"{end / scale:.{decimals}f}"]
        rows.append(cells)
    header = ["batch"]
    for resource in timeline.resources:
        header += [f"{resource} ({unit})", "until"]
    return format_table(header, cut(rows))


def _list_of_windows(timeline: Timeline, width: int) -> str:
    """Return a table of each transfer's ready, start, end and due times."""
    unit, scale = unit_of(timeline.end_ns)
    decimals = _decimals([window.end_ns - window.start_ns for window in timeline.windows], scale)
    rows = [
        [
            _name(window, max(_MIN_LABEL, width - _TIMES_WIDTH)),
            *(
                f"{moment / scale:.{decimals}f}"
                for moment in (window.ready_ns, window.start_ns, window.end_ns, window.due_ns)
            ),
            f"{(window.end_ns - window.due_ns) / scale:.{decimals}f}"
            if window.end_ns > window.due_ns
            else "–",
        ]
        for window in timeline.windows
    ]
    header = ["transfer", f"ready ({unit})", "start", "end", "due", "past due"]
    return format_table(header, cut(rows))


def _name(window: Window, length: int) -> str:
    """Return a transfer's name and as many of its parameters as fit."""
    what, _, carried = window.label.partition(": ")
    names = [printable(name) for name in window.names or (carried,)]
    return f"{printable(what)}: {module_range(names, max(length - len(what) - 2, _MIN_NAME))}"


def _decimals(lengths: list[int], scale: int) -> int:
    """Return the number of decimals that shows the shortest length with two digits."""
    shortest = min((length for length in lengths if length), default=1)
    return min(max(ceil(log10(scale / shortest)) + 1, 1), round(log10(scale)))
