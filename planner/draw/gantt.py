"""The two-lane Gantt chart of iBatch's Fig. 4, as SVG or PNG.

One lane a serial resource. A batch has one colour in all lanes and its number where there is room;
the start-up part of a communication is hatched.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from planner.draw.chart import Chart
from planner.errors import MissingExtraError
from planner.timeline import Interval
from planner.units import format_ns, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["save_gantt"]

# Okabe and Ito's palette: told apart by colour-blind readers too.
_COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#0072B2", "#D55E00")
_DARK = ("#0072B2", "#D55E00")
_STARTUP_EDGE = "#333333"
_WIDTH_INCHES = 11.0
_LANE_INCHES = 0.75
_DIGIT_SHARE = 0.006
"""Share of the width a digit takes; bars too narrow for their number have none."""
_MAX_OUTLINED = 400
"""With more bars in a lane, dark outlines and hatches would hide them."""
_MAX_BARS = 4000
"""With more bars in a lane, most are narrower than a pixel."""


def save_gantt(chart: Chart, path: Path) -> None:
    """Draw `chart` into `path`, in the format of its suffix (``.svg``, ``.png``, ``.pdf``).

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None

    lanes = chart.timeline.resources
    with mpl.rc_context({"svg.hashsalt": "planner", "hatch.linewidth": 0.6}):
        figure = Figure(figsize=(_WIDTH_INCHES, 1.6 + _LANE_INCHES * len(lanes)), dpi=140)
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        unit, scale = unit_of(chart.timeline.end_ns // 2)  # at least two of it on the axis
        for row, resource in enumerate(lanes):
            _draw_lane(axes, chart.timeline.on(resource), row, scale, chart.timeline.end_ns)
        if chart.lower_bound_ns is not None:
            axes.axvline(chart.lower_bound_ns / scale, color="black", linestyle="--", linewidth=1)
        axes.set_yticks(range(len(lanes)), lanes)
        axes.set_ylim(len(lanes) - 0.45, -0.55)
        axes.set_xlim(0, max(chart.timeline.end_ns, 1) / scale * 1.01)
        axes.set_xlabel(f"time ({unit})")
        axes.set_title(chart.title, fontsize=11, loc="left", parse_math=False).set_in_layout(False)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        legend: list[Patch | Line2D] = [
            Patch(facecolor="white", edgecolor=_STARTUP_EDGE, hatch="////", label="start-up"),
            Patch(facecolor="#BBBBBB", edgecolor=_STARTUP_EDGE, label="transfer or computation"),
        ]
        if chart.lower_bound_ns is not None:
            label = f"lower bound ({format_ns(chart.lower_bound_ns)})"
            legend.append(Line2D([], [], color="black", linestyle="--", linewidth=1, label=label))
        figure.legend(
            handles=legend, loc="lower right", ncols=len(legend), frameon=False, fontsize=9
        )
        figure.tight_layout(rect=(0, 0.06, 1, 1))
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata)


def _draw_lane(
    axes: "Axes", intervals: list[Interval], row: int, scale: float, end_ns: int
) -> None:
    bars: dict[str | None, list[tuple[float, float]]] = {}
    for interval in _distinguishable(intervals, end_ns):
        length = interval.end_ns - interval.start_ns
        colour = None if interval.kind == "startup" else _COLOURS[interval.batch % len(_COLOURS)]
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
                color="white" if colour in _DARK else "black",
            )
    crowded = len(intervals) > _MAX_OUTLINED
    for colour, spans in bars.items():
        axes.broken_barh(
            spans,
            (row - 0.31, 0.62),
            facecolor=colour or ("#999999" if crowded else "white"),
            edgecolor=(colour or "#999999") if crowded else _STARTUP_EDGE,
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
