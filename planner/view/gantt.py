"""Gantt charts as figures: one lane per serial resource, and rows of transfers below.

The lanes follow iBatch's Fig. 4; colours mean the same in all charts and on pages. Marked moments,
such as the lower bound, have a labelled line above the lanes. Below the lanes are the windows of
the transfers and the memory in use, if the timeline has them.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from planner.model.layers import module_range
from planner.model.units import counted, format_bytes, format_ns, printable, unit_of
from planner.solving.timeline import COMPUTES, Mark, Timeline, Window
from planner.view.chart import Chart
from planner.view.figure import figure_in, note, title_lines, told
from planner.view.lanes import (
    MEMORY_INCHES,
    PIXELS,
    draw_bar,
    draw_memory,
    draw_passes,
    draw_transfers,
    numbered,
    pass_blocks,
    runs,
    span_text,
)
from planner.view.style import BOUND, KIND_NAMES, KINDS, LATE, MARK, OUTLINE, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

# ---
# The windows of transfers: a thin line from ready to due, with the transfer as a thick bar.
#
# The part of a transfer after its due time is red. If there are more transfers than rows, a row
# holds several consecutive transfers, and its line spans from the first ready to the last due time.

MAX_ROWS = 40
_LABEL_CHARACTERS = 48
_ROW_INCHES = 0.17
_THICK, _CORE = 0.62, 0.2

Row = Sequence[Window]


def window_rows(windows: Sequence[Window]) -> list[Row]:
    """Return the windows of each row, at most `MAX_ROWS`."""
    each = -(-len(windows) // MAX_ROWS) or 1
    return [windows[start : start + each] for start in range(0, len(windows), each)]


def panel_inches(rows: int) -> float:
    """Return the height of the panel."""
    return _ROW_INCHES * (rows + 1)


def draw_windows(axes: "Axes", rows: Sequence[Row], scale: float, end_ns: int) -> None:
    """Draw the rows from the top."""
    pixel = max(end_ns, 1) / PIXELS
    for place, row in enumerate(rows):
        text = _told(row)
        _draw_line(axes, place, row, scale, text)
        spans = [(transfer.kind, transfer.start_ns, transfer.end_ns) for transfer in row]
        for first, last in runs(spans, pixel):
            span = row[first].start_ns, row[last].end_ns
            bar = text if len(row) == 1 else _told(row[first : last + 1])
            draw_bar(axes, span, place, scale, KINDS[row[first].kind], bar, height=_THICK)
        late = [transfer for transfer in row if transfer.end_ns > transfer.due_ns]
        overruns = [
            ("", max(transfer.due_ns, transfer.start_ns), transfer.end_ns) for transfer in late
        ]
        for first, last in runs(overruns, pixel):
            span = overruns[first][1], overruns[last][2]
            past = f"past due: {_told(late[first : last + 1])}"
            draw_bar(axes, span, place, scale, LATE, past, height=_CORE, edge=LATE)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    names = [_name(row) for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=7, parse_math=False)


def _draw_line(axes: "Axes", place: int, row: Row, scale: float, text: str) -> None:
    ready, due = min(sent.ready_ns for sent in row), max(sent.due_ns for sent in row)
    if due > ready:
        line = axes.plot([ready / scale, due / scale], [place, place], color=SOFT, linewidth=1.1)[0]
        told(line, text)
    for moment in (ready, due):
        axes.plot([moment / scale], [place], linestyle="", marker="|", markersize=6, color=OUTLINE)


def _name(row: Row) -> str:
    """Return a row's label: numbers, parameters, size."""
    number = numbered(row[0].batch, row[-1].batch)
    sizes = [sent.size_bytes for sent in row if sent.size_bytes is not None]
    size = f" · {format_bytes(sum(sizes))}" if sizes else ""
    room = _LABEL_CHARACTERS - len(number) - len(size) - 3
    return f"{number} · {module_range(_carried(row), room)}{size}"


def _carried(row: Row) -> list[str]:
    names = [name for sent in row for name in sent.names or (sent.label.partition(": ")[2],)]
    return [printable(name) for name in dict.fromkeys(names)]


def _told(row: Row) -> str:
    """Return the tooltip of a row or of a part of it."""
    first, last = row[0], row[-1]
    span = span_text(first.start_ns, last.end_ns)
    if len(row) == 1:
        window = f"ready {format_ns(first.ready_ns)}, due {format_ns(first.due_ns)}"
        size = "" if first.size_bytes is None else f", {format_bytes(first.size_bytes)}"
        return f"{first.label}{size}, {span}; {window}"
    what = f"{counted(len(row), 'transfer')}, {KIND_NAMES[first.kind]}"
    return f"{what} {numbered(first.batch, last.batch)}, {span}"


_WIDTH_INCHES = 11.0
_LANE_INCHES = 0.7
_MARK_INCHES = 0.2
_LINE_INCHES = 0.19
"""Height of a line of the title or the legend."""
_AXIS_INCHES = 0.55
_ENTRIES = 8
"""Columns of the legend."""


def save_gantt(chart: Chart[Timeline], path: Path) -> None:
    """Draw `chart` into `path`, in the format of its suffix (``.svg``, ``.png``, ``.pdf``).

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    timeline = chart.view
    rows, moments = window_rows(timeline.windows), _moments(chart)
    lanes = _LANE_INCHES * len(timeline.resources) + _MARK_INCHES * len(moments)
    panels = [panel_inches(len(rows))] if rows else []
    panels += [] if timeline.memory is None else [MEMORY_INCHES]
    title = title_lines(chart.title)
    head = 0.2 + _LINE_INCHES * (title.count("\n") + 1)
    with figure_in(path, arranged=False) as figure:
        legend = _legend(chart)
        foot = 0.1 + _LINE_INCHES * -(-len(legend) // _ENTRIES)
        height = head + lanes + sum(panels) + _AXIS_INCHES + foot
        figure.set_size_inches(_WIDTH_INCHES, height)
        figure.text(
            0.01, 1 - 0.1 / height, title, fontsize=11, va="top", parse_math=False
        ).set_in_layout(False)
        every = list(
            figure.subplots(
                1 + len(panels),
                1,
                sharex=True,
                squeeze=False,
                gridspec_kw={"height_ratios": [lanes, *panels]},
            ).flat
        )
        _draw(every, chart, moments)
        figure.legend(
            handles=legend,
            loc="lower center",
            ncols=min(len(legend), _ENTRIES),
            frameon=False,
            fontsize=8.5,
            borderaxespad=0.2,
        )
        figure.tight_layout(rect=(0, foot / height, 1, 1 - head / height), h_pad=0.6)


def _draw(every: list["Axes"], chart: Chart[Timeline], moments: list[tuple[Mark, str]]) -> None:
    """Draw the lanes and the panels below."""
    timeline, axes = chart.view, every[0]
    end = max([timeline.end_ns, *(mark.time_ns for mark, _ in moments), 1])
    unit, scale = unit_of(end // 2)  # the axis spans at least two units
    for plot in every:
        plot.set_xlim(0, end / scale * 1.01)
        plot.spines[["top", "right", "left"]].set_visible(False)
        plot.tick_params(axis="y", length=0)
        plot.xaxis.set_major_formatter("{x:,g}")
    for row, resource in enumerate(timeline.resources):
        intervals = timeline.on(resource)
        computes = any(interval.kind in COMPUTES for interval in intervals)
        (draw_passes if computes else draw_transfers)(axes, intervals, row, scale, end)
    if timeline.windows:
        draw_windows(every[1], window_rows(timeline.windows), scale, end)
    if timeline.memory is not None:
        draw_memory(every[-1], timeline.memory, scale, timeline.end_ns)
    share = _MARK_INCHES / _LANE_INCHES
    for place, (mark, colour) in enumerate(moments):
        for plot in every:
            plot.axvline(mark.time_ns / scale, color=colour, linestyle=(0, (4, 3)), linewidth=1.1)
        left = mark.time_ns > end / 2
        note(
            axes,
            f"{mark.label}: {format_ns(mark.time_ns)}",
            (mark.time_ns / scale, -0.5 - share * (len(moments) - place - 0.5)),
            (-5 if left else 5, 0),
            ha="right" if left else "left",
            va="center",
            fontsize=8,
            color=colour,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
    axes.set_yticks(range(len(timeline.resources)), timeline.resources)
    axes.set_ylim(len(timeline.resources) - 0.5, -0.5 - share * len(moments))
    every[-1].set_xlabel(f"time ({unit})")


def _moments(chart: Chart[Timeline]) -> list[tuple[Mark, str]]:
    """Return the marked moments by time, with their colours."""
    marks = [(mark, MARK) for mark in chart.view.marks]
    if chart.lower_bound_ns is not None:
        reached = chart.lower_bound_ns >= chart.view.end_ns
        label = f"lower bound of every plan{', reached' if reached else ''}"
        marks.append((Mark(chart.lower_bound_ns, label), BOUND))
    return sorted(marks, key=lambda pair: pair[0].time_ns)


def _legend(chart: Chart[Timeline]) -> "list[Patch | Line2D]":
    """Return a legend entry for each colour in the chart."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    windows = chart.view.windows
    present = {interval.kind for interval in chart.view.intervals}
    entries: list[Patch | Line2D] = [
        Patch(facecolor=colour, edgecolor="white", label=KIND_NAMES[kind])
        for kind, colour in KINDS.items()
        if kind in present
    ]
    if any(span.kind == "startup" and span.end_ns > span.start_ns for span in chart.view.intervals):
        entries.append(Patch(facecolor="white", edgecolor=OUTLINE, hatch="////", label="start-up"))
    lanes = (pass_blocks(chart.view.on(lane)) for lane in chart.view.resources)
    if any(
        before[0].kind in COMPUTES and before[-1].end_ns < after[0].start_ns
        for blocks in lanes
        for before, after in pairwise(blocks)
    ):
        frame = Patch(facecolor="none", edgecolor=SOFT, linewidth=0.6, label="idle")
        frame.set_linestyle((0, (3, 3)))
        entries.append(frame)
    if windows:
        ends = "first ready to last due" if len(windows) > MAX_ROWS else "ready to due"
        line = Line2D([], [], color=SOFT, linewidth=1.1, marker="|", label=ends)
        line.set_markeredgecolor(OUTLINE)
        entries.append(line)
    if any(window.end_ns > window.due_ns for window in windows):
        entries.append(Patch(facecolor=LATE, edgecolor=LATE, label="past due"))
    return entries
