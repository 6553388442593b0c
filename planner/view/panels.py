"""A job configuration as a figure: where its time goes, and alternatives below.

The alternatives are the Pareto front of time over machines if known, otherwise the ranking of
configurations. At the bottom is the sensitivity to the constants, if known.
"""

from collections.abc import Sequence
from math import dist, hypot
from typing import TYPE_CHECKING

from planner.model.units import printable
from planner.solving.views import (
    PHASES,
    LayerTime,
    Point,
    Range,
    Scaling,
    epoch_text,
    epoch_unit,
)
from planner.view.chart import Chart, shortened
from planner.view.figure import (
    POINTS,
    X,
    Y,
    draw_rows,
    draw_star,
    frame,
    label_rows,
    legend_above,
    note,
    saving,
    set_range,
    write_ends,
)
from planner.view.scaling import factor_text, grouped, slowdown_text
from planner.view.style import COLOURS, GREY, KINDS, OUTLINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

# ---
# Sensitivity as bars: the factors of each constant between which the configuration stays best.

_LEAST = 4.0
"""The axis spans at least this factor in both directions."""
_MOST = 1000.0
"""The axis spans at most this factor; longer bars end with an arrow."""
_BEYOND = 1.25
"""A bar without an end exceeds the farthest end by this factor."""
_ROOM = 1.07
"""The logarithmic axis is this factor longer, for the numbers behind the ends."""


def draw_ranges(axes: "Axes", ranges: tuple[Range, ...]) -> None:
    """Draw one bar per constant, with arrows where no end was found."""
    ends = [end for factors in ranges for end in (factors.low, factors.high) if end is not None]
    reach = max([_LEAST, *(max(end, 1 / end) for end in ends)])
    reach = min(reach, _MOST) * _BEYOND
    for row, factors in enumerate(ranges):
        low = min(max(factors.low or 0.0, 1 / reach), reach)
        high = reach if factors.high is None else max(min(factors.high, reach), 1 / reach)
        axes.barh(
            [row],
            [high - low],
            0.5,
            left=[low],
            color=COLOURS[0],
            edgecolor=OUTLINE,
            linewidth=0.4,
        )
        for end, at, marker, side in ((factors.low, low, "<", -1), (factors.high, high, ">", 1)):
            shown = end is not None and 1 / reach <= end <= reach
            if not shown:
                axes.plot([at], [row], marker=marker, color=OUTLINE, markersize=5, clip_on=False)
            if end is not None:
                offset, ha = (side * (4 if shown else 8), 0), "left" if side > 0 else "right"
                note(axes, factor_text(end), (at, row), offset, ha=ha, va="center", fontsize=8)
    axes.axvline(1, color=OUTLINE, linewidth=0.8)
    names = [shortened(printable(factors.constant), _MAX_NAME) for factors in ranges]
    label_rows(axes, names)
    set_range(axes, "x", (reach**-_ROOM, reach**_ROOM), logarithmic=True)
    axes.set_xlabel("factor of the constant, all others as given")
    title = "factors of a constant with which this stays the best"
    axes.set_title(title, fontsize=10, loc="left")


# ---
# Pareto front of epoch time over machines, as a step chart.

_LOGARITHMIC = 8
"""Both axes are logarithmic if machines or times span more than this factor."""
_FEW = 60
_MAX_LABELS = 250
"""More labels are thinned out beforehand; most have no room anyway."""
_TOUCHING_POINTS = 6
"""Points at this distance or less (points) count as one for labels."""
_CHARACTER_INCHES = 0.08
_AXES_SHARE = 0.7
"""Least share of a panel's width that the axes take without their labels."""


def draw_front(
    axes: "Axes", points: tuple[Point, ...], best: Point, width_inches: float
) -> "list[Annotation]":
    """Draw one step per configuration and a star on the best; return their labels."""
    unit, scale = epoch_unit(points[-1].epoch_ns)
    machines = [point.machines for point in points]
    times = [max(point.epoch_ns, 1) / scale for point in points]
    axes.step(machines, times, where="post", color=COLOURS[5], linewidth=1.4)
    axes.plot(
        machines,
        times,
        linestyle="",
        **{**POINTS, "markersize": 5 if len(points) <= _FEW else 2.5},
    )
    draw_star(axes, best.machines, max(best.epoch_ns, 1) / scale)
    wide = any(max(values) > _LOGARITHMIC * min(values) for values in (machines, times))
    room = _CHARACTER_INCHES * (len(points[-1].label) + 3) / (_AXES_SHARE * width_inches)
    for which, values, margin in ((X, machines, room / (1 - room)), (Y, times, 0.08)):
        low, high = min(values), max(values)
        logarithmic = wide and high > low
        set_range(
            axes,
            which,
            _with_margins(low, high, margin, logarithmic=logarithmic),
            logarithmic=logarithmic,
            whole=which == X,
        )
    axes.set_xlabel("machines")
    axes.set_ylabel(f"time of an epoch ({unit})")
    frame(axes, "the best with so many: workers × replicas + servers", grid=True)
    labels = []
    step = -(-len(points) // _MAX_LABELS)
    rows = list(zip(points, machines, times, strict=True))
    for point, machine, time in rows[(len(rows) - 1) % step :: step]:
        offset = (8 if point == best else 5, 4)
        label = note(axes, point.label, (machine, time), offset, fontsize=8)
        label.set_in_layout(False)
        labels.append(label)
    return labels


def _with_margins(
    low: float, high: float, margin: float, *, logarithmic: bool
) -> tuple[float, float]:
    """Return limits with room for markers, and for labels at the high end."""
    if logarithmic:
        ratio = high / low
        return low / ratio**0.06, high * ratio**margin
    length = high - low or max(low, 1) / 2
    return max(0.0, low - 0.06 * length), high + margin * length


def thin_out(labels: "Sequence[Annotation]") -> None:
    """Hide labels that overlap others or are nearer to another point.

    Touching points count as one.
    """
    from matplotlib.transforms import Bbox

    if not labels:
        return
    axes = labels[0].axes
    assert axes is not None
    touching = _TOUCHING_POINTS * axes.figure.dpi / 72
    points = [tuple(axes.transData.transform(annotation.xy)) for annotation in labels]
    taken: list[Bbox] = []
    for place in [len(labels) - 1, *range(len(labels) - 1)]:
        label, own = labels[place], points[place]
        box = label.get_window_extent()
        others = [point for point in points if dist(point, own) > touching]
        strange = any(_distance(box, point) <= _distance(box, own) for point in others)
        if strange or any(box.overlaps(covered) for covered in taken):
            label.set_visible(False)
        else:
            taken.append(Bbox.from_extents(box.x0 - 3, box.y0 - 1, box.x1 + 3, box.y1 + 1))


def _distance(box: "Bbox", point: "Sequence[float]") -> float:
    """Return the distance between a point and a box."""
    x, y = point
    return hypot(max(box.x0 - x, 0.0, x - box.x1), max(box.y0 - y, 0.0, y - box.y1))


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
    above = 0.9 + _ROW_INCHES * len(layers)
    below = _PANEL_INCHES if scaling.front else 0.9 + _ROW_INCHES * len(ranked)
    heights = [above, below]
    if scaling.ranges:
        heights.append(0.9 + _ROW_INCHES * len(scaling.ranges))
    figure.set_size_inches(_WIDTH_INCHES, 0.4 + sum(heights))
    grid = figure.add_gridspec(len(heights), height_ratios=heights)
    _draw_layers(figure.add_subplot(grid[0]), layers)
    lower = figure.add_subplot(grid[1])
    if scaling.ranges:
        draw_ranges(figure.add_subplot(grid[2]), scaling.ranges)
    if scaling.front:
        labels = draw_front(lower, scaling.front, scaling.best, _WIDTH_INCHES)
        figure.draw_without_rendering()  # computes the positions of the axes
        thin_out(labels)
    else:
        _draw_ranking(lower, ranked, len(scaling.ranking))


save_scaling = saving(_fill)


def _draw_layers(axes: "Axes", layers: list[LayerTime]) -> None:
    """Draw one bar per layer, stacked from its phases."""
    unit, scale = epoch_unit(max(layer.total_ns for layer in layers) // 2)
    starts = [0] * len(layers)
    for phase, name in enumerate(PHASES):
        lengths = [layer.phases_ns[phase] for layer in layers]
        drawn = [length / scale for length in lengths]
        left = [start / scale for start in starts]
        draw_rows(axes, drawn, _COLOURS[name], left=left, label=name)
        starts = [start + length for start, length in zip(starts, lengths, strict=True)]
    label_rows(axes, [shortened(layer.name, _MAX_NAME) for layer in layers])
    whole = sum(starts)
    ends = [(start / scale, f"{start / whole:.1%}" if whole else "") for start in starts]
    write_ends(axes, ends, 0.09)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_xlabel(f"time in an epoch ({unit})")
    axes.set_title("where the time of an epoch goes, by layer", fontsize=10, loc="left")
    legend_above(axes, len(PHASES), "lower right")


def _draw_ranking(axes: "Axes", points: tuple[Point, ...], count: int) -> None:
    """Draw one bar per configuration, the best first."""
    unit, scale = epoch_unit(points[-1].epoch_ns)
    colours = [COLOURS[0], *[GREY] * (len(points) - 1)]
    draw_rows(axes, [point.epoch_ns / scale for point in points], colours)
    label_rows(axes, [point.label for point in points])
    ends = [(points[0].epoch_ns / scale, epoch_text(points[0].epoch_ns))]
    for point in points[1:]:
        slower = slowdown_text(point.epoch_ns, points[0].epoch_ns)
        sign = "" if slower.endswith("×") or slower.startswith("<") else "+"
        ends.append((point.epoch_ns / scale, f"{epoch_text(point.epoch_ns)} ({sign}{slower})"))
    write_ends(axes, ends, 0.17)
    axes.set_xlabel(f"time of an epoch ({unit})")
    shown = f"the first {len(points)} of {count}" if len(points) < count else "the best of each"
    axes.set_title(f"workers × replicas + servers, {shown}", fontsize=10, loc="left")
