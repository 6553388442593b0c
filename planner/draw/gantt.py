"""The two-lane Gantt chart of iBatch's Fig. 4, as SVG or PNG.

One lane a serial resource. A batch has one colour in all lanes and its number where there is room;
the start-up part of a communication is hatched. Below them the windows of the transfers, if the
timeline has any.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from planner.draw.chart import Chart
from planner.draw.figure import figure_in
from planner.draw.passes import draw_passes
from planner.draw.style import BACKWARD, COLOURS, DARK, FORWARD, MAX_OUTLINED, OUTLINE, OVERRUN
from planner.draw.windows import MAX_WINDOWS, draw_windows, panel_inches
from planner.timeline import Interval, Timeline
from planner.units import format_ns, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["save_gantt"]

_WIDTH_INCHES = 11.0
_LANE_INCHES = 0.75
_MARK_INCHES = 0.25
_LEGEND_INCHES = 0.28
_MARK = "#B00020"
_DIGIT_SHARE = 0.006
"""Share of the width a digit takes; bars too narrow for their number have none."""
_MAX_BARS = 4000
"""With more bars in a lane, most are narrower than a pixel."""


def save_gantt(chart: Chart[Timeline], path: Path) -> None:
    """Draw `chart` into `path`, in the format of its suffix (``.svg``, ``.png``, ``.pdf``).

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    timeline = chart.view
    lanes = timeline.resources
    windows = timeline.windows if len(timeline.windows) <= MAX_WINDOWS else ()
    lanes_inches = 1.6 + _LANE_INCHES * len(lanes) + (_MARK_INCHES if timeline.marks else 0)
    with figure_in(path, arranged=False) as figure:
        panel = panel_inches(len(windows)) if windows else 0
        figure.set_size_inches(_WIDTH_INCHES, lanes_inches + panel)
        if windows:
            grid = {"height_ratios": [lanes_inches - 1.4, panel]}
            axes, below = figure.subplots(2, 1, sharex=True, gridspec_kw=grid)
            every = [axes, below]
        else:
            axes = figure.add_subplot()
            every = [axes]
        unit, scale = unit_of(timeline.end_ns // 2)  # at least two of it on the axis
        for row, resource in enumerate(lanes):
            _draw_lane(axes, timeline.on(resource), row, scale, timeline.end_ns)
        if windows:
            draw_windows(below, windows, scale)
        for plot in every:
            if chart.lower_bound_ns is not None:
                plot.axvline(
                    chart.lower_bound_ns / scale, color="black", linestyle="--", linewidth=1
                )
            for mark in timeline.marks:
                plot.axvline(mark.time_ns / scale, color=_MARK, linestyle=":", linewidth=1.4)
        axes.set_yticks(range(len(lanes)), lanes)
        axes.set_ylim(len(lanes) - 0.45, -0.85 if timeline.marks else -0.55)
        axes.set_xlim(0, max(timeline.end_ns, 1) / scale * 1.01)
        every[-1].set_xlabel(f"time ({unit})")
        axes.set_title(chart.title, fontsize=11, loc="left", parse_math=False).set_in_layout(False)
        for plot in every:
            plot.spines[["top", "right", "left"]].set_visible(False)
            plot.tick_params(axis="y", length=0)
        _draw_mark_labels(axes, chart, scale)
        foot = _draw_legend(figure, chart, with_windows=bool(windows))
        figure.tight_layout(rect=(0, foot, 1, 1))


def _draw_mark_labels(axes: "Axes", chart: Chart[Timeline], scale: float) -> None:
    """Write what marks mean above the lanes, on the side of the line that has more room."""
    for mark in chart.view.marks:
        left = mark.time_ns > chart.view.end_ns / 2
        text = f"{mark.label} ({format_ns(mark.time_ns)})"
        axes.annotate(
            text,
            (mark.time_ns / scale, -0.6),
            (-5 if left else 5, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=8,
            color=_MARK,
            parse_math=False,
        )


def _draw_legend(figure: "Figure", chart: Chart[Timeline], *, with_windows: bool) -> float:
    """Draw the legend at the foot and return the share of the height it takes."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def patch(colour: str, label: str, hatch: str | None = None) -> Patch:
        return Patch(facecolor=colour, edgecolor=OUTLINE, hatch=hatch, label=label)

    legend: list[Patch | Line2D] = []
    if any(interval.kind == "startup" for interval in chart.view.intervals):
        legend.append(patch("white", "start-up", "////"))
    if any(interval.kind in ("backward", "forward") for interval in chart.view.intervals):
        legend += [
            patch(COLOURS[0], "transfer"),
            patch(BACKWARD, "backward ops"),
            patch(FORWARD, "forward ops"),
        ]
    else:
        legend.append(patch("#BBBBBB", "transfer or computation"))
    if with_windows:
        line = Line2D([], [], color=COLOURS[0], linewidth=1.6, marker="|", label="ready to due")
        line.set_markeredgecolor(OUTLINE)
        legend += [
            line,
            patch(OVERRUN, "transfer past due"),
        ]
    if chart.lower_bound_ns is not None:
        label = f"lower bound ({format_ns(chart.lower_bound_ns)})"
        legend.append(Line2D([], [], color="black", linestyle="--", linewidth=1, label=label))
    size = 8.5 if with_windows else 9
    figure.legend(
        handles=legend, loc="lower right", ncols=len(legend), frameon=False, fontsize=size
    )
    if not chart.view.marks and not with_windows:
        return 0.06
    return _LEGEND_INCHES / float(figure.get_size_inches()[1])


def _draw_lane(
    axes: "Axes", intervals: list[Interval], row: int, scale: float, end_ns: int
) -> None:
    if any(interval.kind in ("backward", "forward") for interval in intervals):
        draw_passes(axes, intervals, row, scale, end_ns)
        return
    bars: dict[str | None, list[tuple[float, float]]] = {}
    for interval in _distinguishable(intervals, end_ns):
        length = interval.end_ns - interval.start_ns
        colour = None if interval.kind == "startup" else COLOURS[interval.batch % len(COLOURS)]
        if length:
            bars.setdefault(colour, []).append((interval.start_ns / scale, length / scale))
        number = str(interval.batch + 1)
        needed = _DIGIT_SHARE * (len(number) + 1) * end_ns
        if colour is not None and length and length >= needed:
            axes.text(
                (interval.start_ns + length / 2) / scale,
                row,
                number,
                ha="center",
                va="center",
                fontsize=9,
                color="white" if colour in DARK else "black",
            )
    crowded = len(intervals) > MAX_OUTLINED
    for colour, spans in bars.items():
        axes.broken_barh(
            spans,
            (row - 0.31, 0.62),
            facecolor=colour or ("#999999" if crowded else "white"),
            edgecolor=(colour or "#999999") if crowded else OUTLINE,
            linewidth=0.5,  # of the bar's own colour in a crowd: no bar is too narrow to be seen
            hatch=None if colour or crowded else "////",
        )


def _distinguishable(intervals: list[Interval], end_ns: int) -> list[Interval]:
    """Return the intervals with runs of bars too narrow to see merged into one bar each."""
    if len(intervals) <= _MAX_BARS:
        return intervals
    narrow = end_ns // _MAX_BARS
    merged: list[Interval] = []
    growing = False
    for interval in intervals:
        small = interval.end_ns - interval.start_ns < narrow
        if growing and small and interval.end_ns - merged[-1].start_ns < 2 * narrow:
            merged[-1] = replace(merged[-1], end_ns=interval.end_ns)
        else:
            merged.append(interval)
            growing = small
    return merged
