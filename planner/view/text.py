"""Gantt charts for a terminal.

Each lane is a line of characters, one per equal stretch of time. A character is the last digit of
the batch that fills most of the stretch, ``░`` for start-up, ``·`` for idle, or ``b`` and ``f`` for
ops of the backward and the forward pass.
"""

from math import ceil, log, log10

from planner.model.layers import module_range
from planner.model.units import format_ns, printable, unit_of
from planner.solving.timeline import Interval, Mark, Timeline, Window
from planner.solving.views import (
    PHASES,
    ConstantsRegret,
    Groups,
    LayerTime,
    Point,
    Range,
    Scaling,
    epoch_text,
    share_text,
)
from planner.view.bars import BarChart, BarPanel
from planner.view.chart import Chart, shortened
from planner.view.lanes import memory_lane
from planner.view.scaling import factor_text, grouped, slowdown_text
from planner.view.table import cut, format_table

_TIMES_WIDTH = 52
"""Usual width of a transfer's times (characters)."""
_MIN_LABEL = 32


def text_gantt(chart: Chart[Timeline], width: int = 80) -> str:
    """Return `chart` as text, `width` characters wide."""
    timeline = chart.view
    margin = max(map(len, timeline.resources)) + 2
    columns = max(20, width - margin)
    lines = [chart.title, ""]
    for resource in timeline.resources:
        lane = _lane(timeline.on(resource), timeline.end_ns, columns)
        lines.append(f"{resource:<{margin}}{lane}")
    if timeline.memory is not None:
        lane = memory_lane(timeline.memory, timeline.end_ns, columns)
        lines.append(f"{'memory':<{margin}}{lane}")
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
    return f"{printable(what)}: {module_range(names, length - len(what) - 2)}"


def _decimals(lengths: list[int], scale: int) -> int:
    """Return the number of decimals that shows the shortest length with two digits."""
    shortest = min((length for length in lengths if length), default=1)
    return min(max(ceil(log10(scale / shortest)) + 1, 1), round(log10(scale)))


# ---
# Bar charts for a terminal: one row per bar, below the name of its group.

_MAX_NAME = 48
_MIN_COLUMNS = 10

Row = tuple[str, float | None, str, str]
"""Name, length, text, and the character that fills the bar."""


def text_bars(chart: BarChart, width: int = 80) -> str:
    """Return `chart` as text, `width` characters wide."""
    parts = [_panel(chart, panel, width) for panel in chart.panels]
    return "\n\n".join([chart.title, *parts])


def _panel(chart: BarChart, panel: BarPanel, width: int) -> str:
    rows: list[Row] = []
    several = any(_bars(panel, group) > 1 for group in range(len(chart.groups)))
    for place, group in enumerate(chart.groups):
        if several:
            note = f": {chart.notes[place]}" if chart.notes else ""
            rows.append((group + note, None, "", ""))
        for series in panel.series:
            value = series.values[place]
            if value is not None:
                name = f"  {series.name}" if several else group
                rows.append((name, *panel.bar(value, series.texts[place]), "█"))
    if panel.bound is not None:
        rows.append((panel.bound_text, panel.bound, "", "░"))
    names = [shortened(printable(row[0]), _MAX_NAME) for row in rows]
    named = [name for name, row in zip(names, rows, strict=True) if row[1] is not None]
    margin = max(map(len, named), default=0) + 2
    texts = max((len(row[2]) for row in rows), default=0)
    columns = max(_MIN_COLUMNS, width - margin - texts - 1)
    lines = [f"{panel.title}: {panel.axis}"]
    for name, (_, value, text, character) in zip(names, rows, strict=True):
        if value is None:
            lines.append(name)
            continue
        bar = character * round(value / panel.longest * columns)
        lines.append(f"{name:<{margin}}{bar:<{columns}} {text:>{texts}}".rstrip())
    return "\n".join(lines)


def _bars(panel: BarPanel, group: int) -> int:
    return sum(series.values[group] is not None for series in panel.series)


# ---
# Group sizes for a terminal: a bar of overhead and the time of a group per size.

_MAX_ROWS = 24
_FIXED = 66
"""Characters of a row without its bar."""


def text_groups(chart: Chart[Groups], width: int = 80) -> str:
    """Return `chart` as text, `width` characters wide."""
    groups = chart.view
    columns = max(10, width - _FIXED)
    longest = max(groups.max_overhead, *(point.overhead for point in groups.points)) or 1
    rows: list[tuple[str, ...]] = [
        (
            _bar(point.overhead, groups.max_overhead, longest, columns),
            str(point.group_size),
            share_text(point.overhead),
            format_ns(point.group_time_ns),
            "<- chosen" if point == groups.chosen else groups.breaks(point),
        )
        for point in groups.points
    ]
    limits = f"limits: overhead {share_text(groups.max_overhead)}"
    if groups.max_group_ns is not None:
        limits += f", time of a group {format_ns(groups.max_group_ns)}"
    header = ("overhead (| limit)".ljust(columns), "group size", "share", "time of a group", "")
    return "\n\n".join([chart.title, format_table(header, _cut(groups, rows)), limits])


def _bar(share: float, limit: float, longest: float, columns: int) -> str:
    """Return a bar with a mark at the limit."""
    filled = round(share / longest * columns)
    mark = min(int(limit / longest * columns), columns - 1)
    cells = ["█" if column < filled else " " for column in range(columns)]
    cells[mark] = "|"
    return "".join(cells)


def _cut(groups: Groups, rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the rows, or those around the chosen one if there are too many."""
    if len(rows) <= _MAX_ROWS:
        return rows
    start = groups.points.index(groups.chosen) - _MAX_ROWS // 2
    start = min(max(start, 0), len(rows) - _MAX_ROWS)
    stop = start + _MAX_ROWS
    before, after = (
        [(f"… {left_out} more …", "", "", "", "")] if left_out else []
        for left_out in (start, len(rows) - stop)
    )
    return [*before, *rows[start:stop], *after]


# ---
# Job configurations for a terminal: where the time goes, the ranking, and the alternatives.

_LETTERS = dict(zip(PHASES, "fbucw", strict=True))
_MAX_LAYERS = 24
_MAX_NAME_of_scaling_text = 24
_MAX_CELLS = 20
"""With more workers or replicas several share a cell."""
_SHADES = "0123456789"


def text_scaling(chart: Chart[Scaling], width: int = 80) -> str:
    """Return `chart` as text, `width` characters wide."""
    scaling = chart.view
    parts = [
        chart.title,
        _bars_of_scaling_text(grouped(scaling.layers, _MAX_LAYERS), width),
        " · ".join(f"{letter} {phase}" for phase, letter in _LETTERS.items()),
        _ranking(scaling.ranking),
    ]
    if scaling.front:
        parts.append("best for each number of machines\n" + _front(scaling.front))
    if scaling.landscape:
        parts.append(_landscape(scaling.landscape))
    if scaling.ranges or scaling.regret is not None:
        parts.append(_ranges(scaling.ranges, scaling.regret))
    return "\n\n".join(parts)


def _bars_of_scaling_text(layers: list[LayerTime], width: int) -> str:
    """Return one bar per layer; each letter is an equal stretch of time."""
    names = [shortened(layer.name, _MAX_NAME_of_scaling_text) for layer in layers]
    whole = sum(layer.total_ns for layer in layers)
    longest = max(layer.total_ns for layer in layers) or 1
    margin = max(map(len, names)) + 2
    times = [
        f"{epoch_text(layer.total_ns)} {layer.total_ns / (whole or 1):6.1%}" for layer in layers
    ]
    columns = max(10, width - margin - max(map(len, times)) - 2)
    lines = []
    for name, layer, time in zip(names, layers, times, strict=True):
        bar, spent, drawn = "", 0, 0
        for phase, length in zip(PHASES, layer.phases_ns, strict=True):
            spent += length
            end = (spent * columns + longest // 2) // longest
            bar += _LETTERS[phase] * (end - drawn)
            drawn = end
        lines.append(f"{name:<{margin}}{bar:<{columns}}{time:>{width - margin - columns}}")
    return "\n".join(lines)


def _ranking(points: tuple[Point, ...]) -> str:
    rows = [
        [
            str(rank),
            *_triple(point),
            str(point.machines),
            epoch_text(point.epoch_ns),
            slowdown_text(point.epoch_ns, points[0].epoch_ns),
        ]
        for rank, point in enumerate(points, start=1)
    ]
    header = ["rank", "workers", "replicas", "servers", "machines", "epoch", "slower by"]
    return format_table(header, cut(rows))


def _front(points: tuple[Point, ...]) -> str:
    rows = [[str(point.machines), epoch_text(point.epoch_ns), *_triple(point)] for point in points]
    return format_table(["machines", "epoch", "workers", "replicas", "servers"], cut(rows))


def _triple(point: Point) -> tuple[str, str, str]:
    return str(point.workers), str(point.replicas), str(point.servers)


def _landscape(points: tuple[Point, ...]) -> str:
    """Return a map of digits, from 0 (fastest) to 9 (slowest) on a logarithmic scale."""
    columns = _bins(sorted({point.workers for point in points}))
    rows = _bins(sorted({point.replicas for point in points}))
    cells: dict[tuple[int, int], int] = {}
    for point in points:
        cell = columns[point.workers], rows[point.replicas]
        cells[cell] = min(cells.get(cell, point.epoch_ns), point.epoch_ns)
    least, most = min(cells.values()), max(cells.values())
    span = log(most / least) if most > least > 0 else 0

    def digit(cell: tuple[int, int]) -> str:
        if cell not in cells:
            return " "
        place = log(cells[cell] / least) / span if span else 0
        return _SHADES[min(int(place * len(_SHADES)), len(_SHADES) - 1)]

    names_of_columns, names_of_rows = _names(columns), _names(rows)
    each = max(map(len, names_of_columns))
    margin = max(map(len, names_of_rows)) + 2
    title = (
        f"time of an epoch over workers of a replica (→) and replicas (↓): 0 {epoch_text(least)} "
        f"… 9 {epoch_text(most)}"
    )
    lines = [
        title,
        " " * margin + " ".join(name.rjust(each) for name in names_of_columns),
    ]
    for row, name in enumerate(names_of_rows):
        line = " ".join(digit((column, row)).rjust(each) for column in range(len(names_of_columns)))
        lines.append(f"{name:>{margin - 2}}  {line}".rstrip())
    return "\n".join(lines)


def _bins(values: list[int]) -> dict[int, int]:
    """Return the cell of each value: one each, or growing ranges if there are too many."""
    if len(values) <= _MAX_CELLS:
        return {value: place for place, value in enumerate(values)}
    ratio = values[-1] / values[0]
    raw = [int(log(value / values[0], ratio) * (_MAX_CELLS - 1e-6)) for value in values]
    compact = {cell: place for place, cell in enumerate(sorted(set(raw)))}
    return {value: compact[cell] for value, cell in zip(values, raw, strict=True)}


def _names(bins: dict[int, int]) -> list[str]:
    """Return the first value of each cell."""
    first: dict[int, int] = {}
    for value, cell in bins.items():
        first.setdefault(cell, value)
    return [str(first[cell]) for cell in range(len(first))]


def _ranges(ranges: tuple[Range, ...], regret: ConstantsRegret | None) -> str:
    rows = [
        [factors.constant, factor_text(factors.low), factor_text(factors.high)]
        for factors in ranges
    ]
    text = "factors of each constant between which this configuration stays the best\n"
    text += format_table(["constant", "stays best from", "to"], rows)
    if regret is not None:
        text += f"\n{regret.words}"
    return text
