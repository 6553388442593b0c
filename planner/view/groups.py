"""Group scheduling: overhead and time of a group over its size, with both limits."""

from math import ceil, log, log10
from typing import TYPE_CHECKING, Literal

from planner.model.units import format_ns, unit_of
from planner.solving.views import Groups, share_text
from planner.view.chart import Chart
from planner.view.figure import POINTS, draw_star, frame, note, saving, set_range
from planner.view.style import COLOURS
from planner.view.table import format_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# ---
# As text: a bar of overhead and the time of a group per size.

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
# As a figure.

_LOGARITHMIC = 20
"""The overhead axis is logarithmic if an overhead exceeds this multiple of the limit."""
_FEW = 8
"""Up to this largest size the size axis is linear."""
_MAX_DECADES = 6
"""On longer axes only some powers of ten have labels."""
_CHARACTER = 0.025
"""Upper bound on the width of a character beside a star (share of the axis)."""
_MAX_WRITTEN = 10**6
"""Larger group sizes are written with four digits."""
_SIZE_INCHES = (10.0, 4.2)
_LIMIT = COLOURS[6]
_BEYOND = "#F3E3DA"
"""Colour of the area beyond a limit."""


def _fill(figure: "Figure", chart: Chart[Groups]) -> None:
    figure.set_size_inches(_SIZE_INCHES)
    groups = chart.view
    left, right = figure.subplots(1, 2)
    most = groups.points[-1].group_size
    few = most <= _FEW
    limits = (0.8, most + 0.3) if few else (0.87, most * 1.15)
    for axes, draw in ((left, _draw_overhead), (right, _draw_time)):
        _set_range(axes, "x", limits, logarithmic=not few)
        draw(axes, groups)
        axes.set_xlabel("group size (iterations scheduled at once)")


save_groups = saving(_fill)


def _set_range(
    axes: "Axes", which: Literal["x", "y"], limits: tuple[float, float], *, logarithmic: bool
) -> None:
    """Set the range of an axis, without ticks whose labels would touch."""
    set_range(axes, which, limits, logarithmic=logarithmic, whole=which == "x")
    low, high = limits
    if logarithmic and (step := ceil((log10(high) - log10(low)) / _MAX_DECADES)) > 1:
        axis = axes.xaxis if which == "x" else axes.yaxis
        axis.set_ticks(axis.get_majorticklocs()[::step])


def _draw_overhead(axes: "Axes", groups: Groups) -> None:
    shares = [100 * point.overhead for point in groups.points]
    limit, chosen = 100 * groups.max_overhead, groups.chosen
    low, high = min(*shares, limit), max(*shares, limit)
    logarithmic = low > 0 and high > _LOGARITHMIC * limit
    top = high * (1.6 if logarithmic else 1.15) or 1
    _draw_line(axes, groups, shares, 100 * chosen.overhead)
    _set_range(axes, "y", (low / 1.6 if logarithmic else 0, top), logarithmic=logarithmic)
    left = abs(shares[0] - limit) > abs(shares[-1] - limit)
    _draw_limit(axes, limit, top, f"limit {share_text(groups.max_overhead)}", left=left)
    _name(axes, groups, 100 * chosen.overhead, share_text(chosen.overhead), rising=False)
    axes.set_ylabel("overhead (% of an iteration)")
    frame(axes, "scheduling, as a share of the time", grid=True)


def _draw_time(axes: "Axes", groups: Groups) -> None:
    chosen, limit = groups.chosen, groups.max_group_ns
    times = [point.group_time_ns for point in groups.points]
    unit, scale = unit_of(times[-1] if limit is None else limit)
    ends = [*times, limit] if limit is not None else times
    logarithmic = min(ends) > 0
    height = chosen.group_time_ns / scale
    low, high = 0.0, 1.15 * max(ends) / scale or 1
    if logarithmic:
        room = max(1.6, (max(ends) / min(ends)) ** 0.08)
        low, high = min(ends) / scale / 1.4, max(ends) / scale * room
    _draw_line(axes, groups, [time / scale for time in times], height)
    _set_range(axes, "y", (low, high), logarithmic=logarithmic)
    if limit is not None:
        left = not logarithmic or abs(log(limit / times[0])) > abs(log(limit / times[-1]))
        _draw_limit(axes, limit / scale, high, f"limit {format_ns(limit)}", left=left)
    _name(axes, groups, height, format_ns(chosen.group_time_ns), rising=True)
    axes.set_ylabel(f"time of a group ({unit})")
    frame(axes, "how long the job goes without a decision", grid=True)


def _draw_line(axes: "Axes", groups: Groups, heights: list[float], chosen: float) -> None:
    axes.plot(
        [point.group_size for point in groups.points],
        heights,
        color=COLOURS[5],
        linewidth=1.4,
        **POINTS,
    )
    draw_star(axes, groups.chosen.group_size, chosen, markersize=14, clip_on=False)


def _draw_limit(axes: "Axes", height: float, top: float, text: str, *, left: bool) -> None:
    """Draw a limit and shade the area beyond; its label is at the end farther from the curve."""
    axes.axhspan(height, top, color=_BEYOND, zorder=0)
    axes.axhline(height, color=_LIMIT, linewidth=1.2, linestyle="--", zorder=1)
    place = (0 if left else 1, height)
    style = {"ha": "left" if left else "right", "fontsize": 8.5, "color": _LIMIT}
    note(axes, text, place, (4 if left else -4, 3), xycoords=axes.get_yaxis_transform(), **style)


def _name(axes: "Axes", groups: Groups, height: float, text: str, *, rising: bool) -> None:
    """Write the cost of the chosen size beside its star, inside the axes, away from the curve."""
    size = groups.chosen.group_size
    label = f"{f'{size:,}' if size <= _MAX_WRITTEN else f'{size:.4g}'}: {text}"
    place, _ = (axes.transScale + axes.transLimits).transform((size, height))
    left = place + _CHARACTER * len(label) > 1
    above = left == rising or not height
    offset, side = (-9 if left else 9, 6 if above else -12), "right" if left else "left"
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1}
    note(axes, label, (size, height), offset, ha=side, fontsize=9, bbox=box)
