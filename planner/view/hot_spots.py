"""Synchronisation by slices for a terminal: concurrent pulls at each node, times of each method."""

from typing import TYPE_CHECKING

from planner.model.units import format_ns, printable, unit_of
from planner.solving.views import HotSpots, Pulls
from planner.view.chart import Chart, shortened
from planner.view.figure import draw_rows, label_rows, saving, set_ticks, write_ends
from planner.view.scaling import slowdown_text
from planner.view.style import COLOURS, DARK, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_MAX_TEXT_CELLS = 16
_MAX_NAME = 24


def above_bound(time_ns: int, bound_ns: int | None) -> str:
    """Return the distance of a time to the bound: 3.21%, and from twice on 12.3×."""
    if time_ns == bound_ns:
        return "the lower bound"
    if not bound_ns:
        return ""
    longer = slowdown_text(time_ns, bound_ns)
    return f"{longer} the bound" if longer.endswith("×") else f"{longer} above the bound"


def text_hot_spots(chart: Chart[HotSpots], width: int = 80) -> str:
    """Return `chart` as text, about `width` characters wide."""
    spots = chart.view
    parts = [chart.title, *(_map(name, rows, spots.nodes) for name, rows in spots.maps)]
    return "\n\n".join([*parts, _bars(chart, width)])


def _map(name: str, rows: Pulls, nodes: int) -> str:
    """Return one row per round with the number of pulls at each node."""
    count = min(len(rows), _MAX_TEXT_CELLS)
    each = max(len(str(max(map(max, rows)))), len(str(count - 1)))
    cut = f" (the first {count} of {nodes})" if count < nodes else ""
    lines = [
        f"pulls of gradients at once, {name}: nodes →, turns ↓{cut}",
        "      " + " ".join(str(node).rjust(each) for node in range(count)),
    ]
    for turn, row in enumerate(rows[:count]):
        cells = (str(pulls or "·").rjust(each) for pulls in row[:count])
        lines.append(f"{turn:>4}  {' '.join(cells)}")
    return "\n".join(lines)


def _bars(chart: Chart[HotSpots], width: int) -> str:
    ranking = chart.view.ranking
    names = [printable(name)[:_MAX_NAME] for name, _ in ranking]
    ends = [
        f"{format_ns(time)}  {above_bound(time, chart.lower_bound_ns)}".rstrip()
        for _, time in ranking
    ]
    margin = max(map(len, names)) + 2
    columns = max(10, width - margin - max(map(len, ends)) - 1)
    longest = max(time for _, time in ranking) or 1
    lines = []
    for name, (method, time), end in zip(names, ranking, ends, strict=True):
        bar = ("█" if method == chart.view.method else "▒") * max(
            (time * columns + longest // 2) // longest, time > 0
        )
        lines.append(f"{name:<{margin}}{bar} {end}")
    return "\n".join(lines)


# ---
# Synchronisation by slices as a figure: concurrent pulls at each node, times of each method.

_WIDTH_INCHES = 11.0
_MAP_INCHES = 4.4
_ROW_INCHES = 0.3
_MAX_NUMBERED = 16
"""Up to this number of nodes each cell shows its number."""
_MAX_TICKS = 16
_MAX_COUNTED = 8
"""Up to this maximum the colour scale has a tick per number."""
_NOBODY = "#F2F2F2"


def _fill(figure: "Figure", chart: Chart[HotSpots]) -> None:
    maps = chart.view.maps
    heights = [_MAP_INCHES] * bool(maps) + [0.9 + _ROW_INCHES * len(chart.view.times_ns)]
    figure.set_size_inches(_WIDTH_INCHES, 0.4 + sum(heights))
    grid = figure.add_gridspec(len(heights), max(len(maps), 1), height_ratios=heights)
    most = max((pulls for _, rows in maps for row in rows for pulls in row), default=0)
    panels: list[Axes] = []
    for place, (name, rows) in enumerate(maps):
        panels.append(figure.add_subplot(grid[0, place]))
        image = _draw_map(panels[-1], name, rows, most, chart.view.nodes)
    if maps:
        bar = figure.colorbar(image, ax=panels, pad=0.01, aspect=30)
        bar.set_label("nodes that pull gradients from it at once")
        if most > _MAX_COUNTED:
            set_ticks(bar.ax.yaxis, 1, most, ends=True)
        else:
            bar.ax.minorticks_off()
            bar.set_ticks(range(1, most + 1), labels=[str(pulls) for pulls in range(1, most + 1)])
    _draw_bars(figure.add_subplot(grid[-1, :]), chart)


save_hot_spots = saving(_fill)


def _draw_map(axes: "Axes", name: str, rows: Pulls, most: int, nodes: int) -> "AxesImage":
    """Draw one cell per node (across) and round (down); cells without pulls stay empty."""
    import numpy as np
    from matplotlib.colors import LogNorm

    image = axes.imshow(
        np.ma.masked_equal(rows, 0),
        cmap="viridis_r",
        norm=LogNorm(1, max(most, 2)),
        interpolation="nearest",
    )
    axes.set_facecolor(_NOBODY)
    count = len(rows)
    if count <= _MAX_NUMBERED:
        for turn, row in enumerate(rows):
            for node, pulls in enumerate(row):
                if pulls:
                    axes.annotate(
                        str(pulls),
                        (node, turn),
                        ha="center",
                        va="center",
                        fontsize=7.5,
                        color="white" if pulls * pulls > most else "black",
                    )
    ticks = range(0, count, -(-count // _MAX_TICKS))
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)
    axes.tick_params(labelsize=8, length=0)
    axes.spines[:].set_visible(False)
    cut = f" (the first {count} of {nodes})" if count < nodes else ""
    axes.set_xlabel(f"node that is asked{cut}")
    axes.set_ylabel(f"turn{cut}")
    axes.set_title(f"{name}: at most {max(map(max, rows))} at once", fontsize=10, loc="left")
    return image


def _draw_bars(axes: "Axes", chart: Chart[HotSpots]) -> None:
    """Draw one bar per method, the fastest first, and the lower bound."""
    ranking = chart.view.ranking
    longest = ranking[-1][1]
    unit, scale = unit_of(longest)
    colours = [COLOURS[0] if name == chart.view.method else GREY for name, _ in ranking]
    draw_rows(axes, [time / scale for _, time in ranking], colours)
    ends = []
    for _, time in ranking:
        above = above_bound(time, chart.lower_bound_ns)
        ends.append((time / scale, f"{format_ns(time)}{f'  ({above})' if above else ''}"))
    write_ends(axes, ends, 0.27)
    if chart.lower_bound_ns is not None:
        axes.axvline(chart.lower_bound_ns / scale, color=DARK[1], linewidth=1.2, linestyle="--")
    names = [shortened(printable(name), _MAX_NAME) for name, _ in ranking]
    label_rows(axes, names, 8.5)
    axes.set_xlabel(f"time of one synchronisation ({unit}); dashed: the lower bound")
    axes.set_title("every way to synchronise", fontsize=10, loc="left")
