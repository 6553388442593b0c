"""Gantt charts as figures: one lane per serial resource, and rows of transfers below.

The lanes follow iBatch's Fig. 4; colours mean the same in all charts and on pages. Marked moments,
such as the lower bound, have a labelled line above the lanes. Below the lanes are the windows of
the transfers and the memory in use, if the timeline has them.
"""

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from planner.model.units import format_ns, unit_of
from planner.solving.timeline import COMPUTES, Interval, Mark, Timeline
from planner.view.chart import Chart
from planner.view.figure import figure_in, title_lines
from planner.view.lanes import draw_transfers
from planner.view.memory import MEMORY_INCHES, draw_memory
from planner.view.passes import draw_passes, pass_blocks
from planner.view.style import BOUND, KIND_NAMES, KINDS, LATE, MARK, OUTLINE, SOFT
from planner.view.windows import MAX_ROWS, draw_windows, panel_inches, window_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

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
        _draw_lane(axes, timeline.on(resource), row, scale, end)
    if timeline.windows:
        draw_windows(every[1], window_rows(timeline.windows), scale, end)
    if timeline.memory is not None:
        draw_memory(every[-1], timeline.memory, scale, timeline.end_ns)
    share = _MARK_INCHES / _LANE_INCHES
    for place, (mark, colour) in enumerate(moments):
        for plot in every:
            plot.axvline(mark.time_ns / scale, color=colour, linestyle=(0, (4, 3)), linewidth=1.1)
        left = mark.time_ns > end / 2
        axes.annotate(
            f"{mark.label}: {format_ns(mark.time_ns)}",
            (mark.time_ns / scale, -0.5 - share * (len(moments) - place - 0.5)),
            (-5 if left else 5, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=8,
            color=colour,
            parse_math=False,
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


def _draw_lane(
    axes: "Axes", intervals: list[Interval], row: int, scale: float, end_ns: int
) -> None:
    computes = any(interval.kind in COMPUTES for interval in intervals)
    (draw_passes if computes else draw_transfers)(axes, intervals, row, scale, end_ns)


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
