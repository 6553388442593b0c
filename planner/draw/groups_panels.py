"""Group scheduling as a figure: overhead and time of a group against its size, with both limits."""

from math import log
from pathlib import Path
from typing import TYPE_CHECKING

from planner.draw.axes import set_range
from planner.draw.figure import figure_in
from planner.draw.groups import Groups, GroupsChart, share_text
from planner.draw.style import COLOURS, OUTLINE
from planner.units import format_ns, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["save_groups"]

_LOGARITHMIC = 20
"""If the largest overhead is more times the limit, the axis of overheads is logarithmic."""
_FEW = 8
"""Up to this size the axis of sizes is not."""
_SIZE_INCHES = (10.0, 4.2)
_LIMIT = COLOURS[6]
_BEYOND = "#F3E3DA"
"""Where a limit is broken."""


def save_groups(chart: GroupsChart, path: Path) -> None:
    """Draw `chart` into `path`, in the format of its suffix (``.svg``, ``.png``, ``.pdf``).

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    with figure_in(path) as figure:
        figure.set_size_inches(_SIZE_INCHES)
        _fill(figure, chart)


def _fill(figure: "Figure", chart: GroupsChart) -> None:
    groups = chart.groups
    title = figure.suptitle(chart.title, fontsize=11, x=0.01, ha="left", parse_math=False)
    title.set_in_layout(True)
    left, right = figure.subplots(1, 2)
    _draw_overhead(left, groups)
    _draw_time(right, groups)
    most = groups.points[-1].group_size
    few = most <= _FEW
    limits = (0.8, most + 0.3) if few else (0.87, most * 1.15)
    for axes in (left, right):
        set_range(axes, "x", limits, logarithmic=not few, whole=True)
        axes.set_xlabel("group size (iterations scheduled at once)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color="#E4E4E4", linewidth=0.6)
        axes.set_axisbelow(True)


def _draw_overhead(axes: "Axes", groups: Groups) -> None:
    shares = [100 * one.overhead for one in groups.points]
    limit, chosen = 100 * groups.max_overhead, groups.chosen
    low, high = min(*shares, limit), max(*shares, limit)
    logarithmic = low > 0 and high > _LOGARITHMIC * limit
    top = high * (1.6 if logarithmic else 1.15)
    _draw_line(axes, groups, shares, 100 * chosen.overhead)
    set_range(axes, "y", (low / 1.6 if logarithmic else 0, top), logarithmic=logarithmic)
    left = abs(shares[0] - limit) > abs(shares[-1] - limit)
    _draw_limit(axes, limit, top, f"limit {share_text(groups.max_overhead)}", left=left)
    _name(axes, groups, 100 * chosen.overhead, share_text(chosen.overhead), above=True)
    axes.set_ylabel("overhead (% of an iteration)")
    axes.set_title("scheduling, as a share of the time", fontsize=10, loc="left")


def _draw_time(axes: "Axes", groups: Groups) -> None:
    chosen, limit = groups.chosen, groups.max_group_ns
    times = [max(one.group_time_ns, 1) for one in groups.points]
    unit, scale = unit_of(times[-1] if limit is None else limit)
    ends = [*times, limit] if limit is not None else times
    room = max(1.6, (max(ends) / min(ends)) ** 0.08)
    low, high = min(ends) / scale / 1.4, max(ends) / scale * room
    height = max(chosen.group_time_ns, 1) / scale
    _draw_line(axes, groups, [time / scale for time in times], height)
    set_range(axes, "y", (low, high), logarithmic=True)
    if limit is not None:
        left = abs(log(limit / times[0])) > abs(log(limit / times[-1]))
        _draw_limit(axes, limit / scale, high, f"limit {format_ns(limit)}", left=left)
    _name(axes, groups, height, format_ns(chosen.group_time_ns), above=False)
    axes.set_ylabel(f"time of a group ({unit})")
    axes.set_title("how long the job goes without a decision", fontsize=10, loc="left")


def _draw_line(axes: "Axes", groups: Groups, heights: list[float], chosen: float) -> None:
    axes.plot(
        [one.group_size for one in groups.points],
        heights,
        color=COLOURS[5],
        linewidth=1.4,
        marker="o",
        markersize=4,
        markerfacecolor=COLOURS[0],
        markeredgecolor=OUTLINE,
        markeredgewidth=0.5,
    )
    axes.plot(
        [groups.chosen.group_size],
        [chosen],
        linestyle="",
        marker="*",
        markersize=14,
        color="white",
        markeredgecolor=OUTLINE,
        zorder=5,
    )


def _draw_limit(axes: "Axes", height: float, top: float, text: str, *, left: bool) -> None:
    """Draw a limit, shade what breaks it, and name it at the end that is farther from the curve."""
    axes.axhspan(height, top, color=_BEYOND, zorder=0)
    axes.axhline(height, color=_LIMIT, linewidth=1.2, linestyle="--", zorder=1)
    axes.annotate(
        text,
        (0 if left else 1, height),
        (4 if left else -4, 3),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        ha="left" if left else "right",
        fontsize=8.5,
        color=_LIMIT,
    )


def _name(axes: "Axes", groups: Groups, height: float, text: str, *, above: bool) -> None:
    """Write what the chosen size costs beside its star, away from the curve."""
    size = groups.chosen.group_size
    axes.annotate(
        f"{size}: {text}",
        (size, height),
        (9, 6 if above else -12),
        textcoords="offset points",
        fontsize=9,
    )
