"""Gantt charts as figures: one lane per serial resource, and rows of transfers below.

The lanes follow iBatch's Fig. 4; colours mean the same in all charts and on pages. Marked moments,
such as the lower bound, have a labelled line above the lanes. Below the lanes are the windows of
the transfers and the memory in use, if the timeline has them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.model.units import byte_unit, format_bytes, format_ns, unit_of
from planner.solving.timeline import COMPUTES, Mark, Memory, Timeline
from planner.view.chart import Chart
from planner.view.figure import figure_in, note, title_lines, told
from planner.view.scene import NARROW, Bar, Look, Pen, Row, Scene, scene_of
from planner.view.style import BOUND, KINDS, LATE, MARK, ON_BAR, OUTLINE, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

PEN = Pen(width=660, apart=5, character=5.6, digit=6.5, rows=40, label=48)
"""Approximate sizes in a chart (points)."""

_WIDTH_INCHES = 11.0
_LANE_INCHES = 0.7
_MARK_INCHES = 0.2
_ROW_INCHES = 0.17
_MEMORY_INCHES = 1.5
_LINE_INCHES = 0.19
"""Height of a line of the title or the legend."""
_AXIS_INCHES = 0.55
_ENTRIES = 8
"""Columns of the legend."""
_BAR, _LATE_BAR = 0.62, 0.2
"""Height of a bar, and of its part past due (shares of a lane or row)."""
_DASHES = (0, (4, 3))

_LOOKS: Mapping[Look, dict[str, Any]] = {
    **{kind: {"facecolor": colour, "edgecolor": "white"} for kind, colour in KINDS.items()},
    "startup": {"facecolor": "white", "edgecolor": OUTLINE, "hatch": "////"},
    "idle": {
        "facecolor": "none",
        "edgecolor": SOFT,
        "linewidth": 0.6,
        "linestyle": (0, (3, 3)),
        "zorder": 1,
    },
    "late": {"facecolor": LATE, "edgecolor": LATE},
}


def save_gantt(chart: Chart[Timeline], path: Path) -> None:
    """Draw `chart` into `path`, in the format of its suffix (``.svg``, ``.png``, ``.pdf``).

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    timeline, moments = chart.view, _moments(chart)
    end_ns = max([timeline.end_ns, *(mark.time_ns for mark, _ in moments), 1])
    scene = scene_of(timeline, PEN, end_ns)
    lanes = _LANE_INCHES * len(scene.lanes) + _MARK_INCHES * len(moments)
    panels = [_ROW_INCHES * (len(scene.rows) + 1)] if scene.rows else []
    panels += [] if timeline.memory is None else [_MEMORY_INCHES]
    title = title_lines(chart.title)
    head = 0.2 + _LINE_INCHES * (title.count("\n") + 1)
    with figure_in(path, arranged=False) as figure:
        foot = 0.1 + _LINE_INCHES * -(-len(scene.legend) // _ENTRIES)
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
        _draw(every, timeline, scene, moments, end_ns)
        figure.legend(
            handles=[_entry(look, name) for look, name in scene.legend],
            loc="lower center",
            ncols=min(len(scene.legend), _ENTRIES),
            frameon=False,
            fontsize=8.5,
            borderaxespad=0.2,
        )
        figure.tight_layout(rect=(0, foot / height, 1, 1 - head / height), h_pad=0.6)


def _draw(
    every: list["Axes"],
    timeline: Timeline,
    scene: Scene,
    moments: list[tuple[Mark, str]],
    end_ns: int,
) -> None:
    """Draw the lanes and the panels below."""
    unit, scale = unit_of(end_ns // 2)  # the axis spans at least two units
    axes = every[0]
    for plot in every:
        plot.set_xlim(0, end_ns / scale * 1.01)
        plot.spines[["top", "right", "left"]].set_visible(False)
        plot.tick_params(axis="y", length=0)
        plot.xaxis.set_major_formatter("{x:,g}")
    for place, bars in enumerate(scene.lanes):
        for bar in bars:
            draw_bar(axes, bar, place, scale)
    if scene.rows:
        draw_rows(every[1], scene.rows, scale)
    if timeline.memory is not None:
        _draw_memory(every[-1], timeline.memory, scale, timeline.end_ns)
    share = _MARK_INCHES / _LANE_INCHES
    for place, (mark, colour) in enumerate(moments):
        for plot in every:
            plot.axvline(mark.time_ns / scale, color=colour, linestyle=_DASHES, linewidth=1.1)
        left = mark.time_ns > end_ns / 2
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
    axes.set_yticks(range(len(scene.lanes)), timeline.resources)
    axes.set_ylim(len(scene.lanes) - 0.5, -0.5 - share * len(moments))
    every[-1].set_xlabel(f"time ({unit})")


def draw_bar(axes: "Axes", bar: Bar, row: int, scale: float, height: float = _BAR) -> None:
    """Draw a bar with its tooltip and its text; no bar is too narrow to be seen.

    `scale` is in ns per unit of the axis, `height` in lanes.
    """
    from matplotlib.patches import Rectangle

    left, right = axes.get_xlim()
    start, length = bar.start_ns / scale, (bar.end_ns - bar.start_ns) / scale
    hatched = bar.look == "startup"
    look: dict[str, Any] = {"linewidth": 0.4 if hatched else 0.75, "zorder": 2.5 if hatched else 2}
    look |= _LOOKS[bar.look]
    if bar.look in KINDS and (not bar.apart or length < NARROW * (right - left) / PEN.width):
        look["edgecolor"] = look["facecolor"]
    corner = start, row - height / 2
    drawn = Rectangle(corner, length, height * bar.share, **look)
    axes.add_patch(told(drawn, bar.told))
    if bar.text:
        idle, computes = bar.look == "idle", bar.look in COMPUTES
        ground = "white" if idle else look["facecolor"]
        axes.text(
            start + length / 2,
            row,
            bar.text,
            fontsize=8 if idle or computes else 9,
            color=SOFT if idle else ON_BAR,
            bbox={"facecolor": ground, "edgecolor": "none", "pad": 1},
            ha="center",
            va="center",
            parse_math=False,
        )


def draw_rows(axes: "Axes", rows: Sequence[Row], scale: float) -> None:
    """Draw the rows from the top."""
    for place, row in enumerate(rows):
        ready, due = row.ready_ns / scale, row.due_ns / scale
        if due > ready:
            line = axes.plot([ready, due], [place, place], color=SOFT, linewidth=1.1)[0]
            told(line, row.told)
        for moment in (ready, due):
            axes.plot([moment], [place], linestyle="", marker="|", markersize=6, color=OUTLINE)
        for bar in row.bars:
            draw_bar(axes, bar, place, scale, _LATE_BAR if bar.look == "late" else _BAR)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=7, parse_math=False)


def _draw_memory(axes: "Axes", memory: Memory, scale: float, end_ns: int) -> None:
    """Draw the memory in use, its peak, and the limit, unless that is far above."""
    moment, most = memory.peak
    limit = memory.limit_bytes
    top = max(most, limit if limit is not None and limit <= 2 * most else 0)
    unit, length = byte_unit(top)
    times = [moment / scale for moment, _ in memory.levels] + [end_ns / scale]
    sizes = [size / length for _, size in memory.levels]
    axes.fill_between(times, [*sizes, sizes[-1]], step="post", color=KINDS["forward"], linewidth=0)
    axes.step(times, [*sizes, sizes[-1]], where="post", color=SOFT, linewidth=0.8)
    axes.plot([moment / scale], [most / length], marker="o", markersize=4, color=MARK)
    left = moment > end_ns / 2
    style = {"ha": "right" if left else "left", "fontsize": 8, "color": MARK}
    place = (moment / scale, most / length)
    note(axes, f"peak {format_bytes(most, top)}", place, (-6 if left else 6, 4), **style)
    if limit is not None and limit <= 2 * most:
        axes.axhline(limit / length, color=BOUND, linewidth=1.1, linestyle=_DASHES)
        text = f"limit {format_bytes(limit, top)}"
        note(axes, text, (0, limit / length), (4, 3), fontsize=8, color=BOUND)
    axes.set_ylim(0, top / length * 1.25 or 1)
    axes.set_ylabel(f"memory ({unit})", fontsize=8)


def _moments(chart: Chart[Timeline]) -> list[tuple[Mark, str]]:
    """Return the marked moments by time, with their colours."""
    marks = [(mark, MARK) for mark in chart.view.marks]
    if chart.lower_bound_ns is not None:
        reached = chart.lower_bound_ns >= chart.view.end_ns
        label = f"lower bound of every plan{', reached' if reached else ''}"
        marks.append((Mark(chart.lower_bound_ns, label), BOUND))
    return sorted(marks, key=lambda pair: pair[0].time_ns)


def _entry(look: Look, name: str) -> "Patch | Line2D":
    """Return an entry of the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if look == "window":
        line = Line2D([], [], color=SOFT, linewidth=1.1, marker="|", label=name)
        line.set_markeredgecolor(OUTLINE)
        return line
    return Patch(label=name, **_LOOKS[look])
