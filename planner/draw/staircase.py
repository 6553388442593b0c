"""Pareto front of epoch time over machines, as a step chart."""

from collections.abc import Sequence
from math import dist, hypot
from typing import TYPE_CHECKING

from planner.draw.axes import X, Y, draw_star, set_range
from planner.draw.style import COLOURS, OUTLINE
from planner.views import Point, epoch_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

__all__ = ["draw_front", "thin_out"]

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
        marker="o",
        markersize=5 if len(points) <= _FEW else 2.5,
        color=COLOURS[0],
        markeredgecolor=OUTLINE,
        markeredgewidth=0.5,
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
    axes.set_title("the best with so many: workers × replicas + servers", fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)
    labels = []
    step = -(-len(points) // _MAX_LABELS)
    rows = list(zip(points, machines, times, strict=True))
    for point, machine, time in rows[(len(rows) - 1) % step :: step]:
        label = axes.annotate(
            point.label,
            (machine, time),
            (8 if point == best else 5, 4),
            textcoords="offset points",
            fontsize=8,
        )
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
