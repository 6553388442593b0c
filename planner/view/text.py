"""Gantt charts for a terminal.

Each lane is a line of characters, one for each interval of time: the last digit of the batch that
fills most of the interval, ``░`` for start-up, ``·`` for idle, or ``b`` and ``f`` for ops of the
backward and the forward pass.
"""

from itertools import chain
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
    legend = "digits: batches (last digit)"
    if timeline.windows:
        legend = "b backward · f forward · digits: transfers (last digit)"
    if any(interval.kind == "startup" for interval in timeline.intervals):
        legend += " · ░ start-up"
    lines += ["", f"{legend} · '·' idle", "", _list(timeline, width)]
    return "\n".join(lines)


def _mark(mark: Mark, end_ns: int, columns: int) -> str:
    """Return a row that points at a moment and names it."""
    column = min(mark.time_ns * columns // end_ns, columns - 1) if end_ns else 0
    text = f"{mark.label} ({format_ns(mark.time_ns)})"
    if column >= len(text) + 1 and column > columns // 2:
        return f"{text} |".rjust(column + 1)
    return f"{' ' * column}| {text}"


def _lane(intervals: list[Interval], end_ns: int, columns: int) -> str:
    """Return one character per interval; O(intervals + columns)."""
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


def _list(timeline: Timeline, width: int) -> str:
    """Return the table of all transfers, or of all batches, and when they happen."""
    unit, scale = unit_of(timeline.end_ns)
    spans = timeline.windows or timeline.intervals
    shortest = min((s.end_ns - s.start_ns for s in spans if s.end_ns > s.start_ns), default=1)
    # enough that the shortest length has two digits
    decimals = min(max(ceil(log10(scale / shortest)) + 1, 1), round(log10(scale)))

    def shown(*moments: int | None) -> list[str]:
        return ["–" if time is None else f"{time / scale:.{decimals}f}" for time in moments]

    rows = []
    if timeline.windows:
        header = ["transfer", f"ready ({unit})", "start", "end", "due", "past due"]
        for window in timeline.windows:
            moments = (window.ready_ns, window.start_ns, window.end_ns, window.due_ns)
            late = window.end_ns - window.due_ns
            name = _name(window, max(_MIN_LABEL, width - _TIMES_WIDTH))
            rows.append([name, *shown(*moments, late if late > 0 else None)])
        return format_table(header, cut(rows))
    batches: dict[int, list[Interval]] = {}
    for interval in timeline.intervals:
        batches.setdefault(interval.batch, []).append(interval)
    for members in batches.values():
        cells = [printable(members[0].label)]
        for resource in timeline.resources:
            own = [interval for interval in members if interval.resource == resource]
            start, end = (
                (min(i.start_ns for i in own), max(i.end_ns for i in own)) if own else (None, None)
            )
            cells += shown(start, end)
        rows.append(cells)
    columns = ((f"{resource} ({unit})", "until") for resource in timeline.resources)
    return format_table(["batch", *chain.from_iterable(columns)], cut(rows))


def _name(window: Window, length: int) -> str:
    """Return a transfer's name and as many of its parameters as fit."""
    what, _, carried = window.label.partition(": ")
    names = [printable(name) for name in window.names or (carried,)]
    return f"{printable(what)}: {module_range(names, max(length - len(what) - 2, _MIN_NAME))}"
