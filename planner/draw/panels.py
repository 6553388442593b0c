"""A job configuration as a figure: where its time goes, and alternatives below.

The alternatives are a map of the best time over workers and replicas and the Pareto front of time
over machines if known, otherwise the ranking of configurations. At the bottom is the sensitivity to
the constants, if known.
"""

from typing import TYPE_CHECKING

from planner.draw.axes import label_rows
from planner.draw.chart import Chart, shortened
from planner.draw.figure import saving
from planner.draw.landscape import draw_landscape
from planner.draw.ranges import draw_ranges
from planner.draw.scaling import grouped, slowdown_text
from planner.draw.staircase import draw_front, thin_out
from planner.draw.style import COLOURS, GREY, KINDS, OUTLINE
from planner.views import PHASES, LayerTime, Point, Scaling, epoch_text, epoch_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["save_scaling"]

_WIDTH_INCHES = 11.0
_ROW_INCHES = 0.22
_PANEL_INCHES = 4.3
_MAX_LAYERS = 48
_MAX_RANKED = 24
_MAX_NAME = 24
_COLOURS = dict(
    zip(
        PHASES,
        (KINDS["forward"], KINDS["backward"], COLOURS[3], KINDS["all_reduce"], KINDS["pull"]),
        strict=True,
    )
)


def _fill(figure: "Figure", chart: Chart[Scaling]) -> None:
    scaling = chart.view
    layers = grouped(scaling.layers, _MAX_LAYERS)
    ranked = scaling.ranking[:_MAX_RANKED]
    maps = bool(scaling.landscape) + bool(scaling.front)
    above = 0.9 + _ROW_INCHES * len(layers)
    below = _PANEL_INCHES if maps else 0.9 + _ROW_INCHES * len(ranked)
    heights = [above, below]
    if scaling.ranges:
        heights.append(0.9 + _ROW_INCHES * len(scaling.ranges))
    figure.set_size_inches(_WIDTH_INCHES, 0.4 + sum(heights))
    grid = figure.add_gridspec(len(heights), max(maps, 1), height_ratios=heights)
    _draw_layers(figure.add_subplot(grid[0, :]), layers)
    lower = [figure.add_subplot(grid[1, place]) for place in range(max(maps, 1))]
    if scaling.ranges:
        draw_ranges(figure.add_subplot(grid[2, :]), scaling.ranges, scaling.regret)
    if scaling.landscape:
        draw_landscape(lower[0], scaling.landscape, scaling.best)
    if scaling.front:
        labels = draw_front(lower[-1], scaling.front, scaling.best, _WIDTH_INCHES / maps)
        figure.draw_without_rendering()  # computes the positions of the axes
        thin_out(labels)
    if not maps:
        _draw_ranking(lower[0], ranked, len(scaling.ranking))


save_scaling = saving(_fill)


def _draw_layers(axes: "Axes", layers: list[LayerTime]) -> None:
    """Draw one bar per layer, stacked from its phases."""
    unit, scale = epoch_unit(max(layer.total_ns for layer in layers) // 2)
    starts = [0] * len(layers)
    rows = range(len(layers))
    for phase, name in enumerate(PHASES):
        lengths = [layer.phases_ns[phase] for layer in layers]
        axes.barh(
            rows,
            [length / scale for length in lengths],
            0.72,
            left=[start / scale for start in starts],
            color=_COLOURS[name],
            edgecolor=OUTLINE,
            linewidth=0.4,
            label=name,
        )
        starts = [start + length for start, length in zip(starts, lengths, strict=True)]
    label_rows(axes, [shortened(layer.name, _MAX_NAME) for layer in layers])
    whole = sum(starts)
    _write_ends(
        axes, [(start / scale, f"{start / whole:.1%}" if whole else "") for start in starts]
    )
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_xlabel(f"time in an epoch ({unit})")
    axes.set_title("where the time of an epoch goes, by layer", fontsize=10, loc="left")
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=len(PHASES),
        frameon=False,
        fontsize=8.5,
        borderaxespad=0.2,
        handlelength=1.2,
        columnspacing=1.2,
    )


def _draw_ranking(axes: "Axes", points: tuple[Point, ...], count: int) -> None:
    """Draw one bar per configuration, the best first."""
    unit, scale = epoch_unit(points[-1].epoch_ns)
    axes.barh(
        range(len(points)),
        [point.epoch_ns / scale for point in points],
        0.72,
        color=[COLOURS[0], *[GREY] * (len(points) - 1)],
        edgecolor=OUTLINE,
        linewidth=0.4,
    )
    label_rows(axes, [point.label for point in points])
    ends = [(points[0].epoch_ns / scale, epoch_text(points[0].epoch_ns))]
    for point in points[1:]:
        slower = slowdown_text(point.epoch_ns, points[0].epoch_ns)
        sign = "" if slower.endswith("×") or slower.startswith("<") else "+"
        ends.append((point.epoch_ns / scale, f"{epoch_text(point.epoch_ns)} ({sign}{slower})"))
    _write_ends(axes, ends, share=0.17)
    axes.set_xlabel(f"time of an epoch ({unit})")
    shown = f"the first {len(points)} of {count}" if len(points) < count else "the best of each"
    axes.set_title(f"workers × replicas + servers, {shown}", fontsize=10, loc="left")


def _write_ends(axes: "Axes", ends: list[tuple[float, str]], share: float = 0.09) -> None:
    """Write each bar's value after its end, with `share` of the longest bar as room."""
    longest = max(end for end, _ in ends)
    axes.set_xlim(0, longest * (1 + share) or 1)
    for row, (end, text) in enumerate(ends):
        axes.annotate(text, (end, row), (4, 0), textcoords="offset points", va="center", fontsize=8)
