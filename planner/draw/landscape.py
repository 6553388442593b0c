"""Heat map of the best epoch time over workers per replica and replicas."""

from itertools import pairwise
from typing import TYPE_CHECKING

from planner.draw.axes import X, Y, draw_star, set_range, set_ticks
from planner.views import Point, epoch_text, epoch_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_landscape"]

_MAX_VECTOR_CELLS = 1500
"""More cells are drawn as an image; as shapes they would make the file too large."""
_MAX_OUTLINED_CELLS = 400
_MAX_LINEAR = 40
"""Larger axes are logarithmic: W·R <= N leaves most of a linear square empty."""


def draw_landscape(axes: "Axes", points: tuple[Point, ...], best: Point) -> None:
    """Draw one cell per pair, and a star on the best."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import LogNorm, Normalize

    times = [max(point.epoch_ns, 1) for point in points]
    unit, scale = epoch_unit(min(times))
    low, high = min(times) / scale, max(times) / scale
    norm = LogNorm(low, high) if high > low else Normalize(low * 0.9, low * 1.1)
    columns = _edges(sorted({point.workers for point in points}))
    rows = _edges(sorted({point.replicas for point in points}))
    cells = []
    for point in points:
        left, right = columns[point.workers]
        bottom, top = rows[point.replicas]
        cells.append([(left, bottom), (right, bottom), (right, top), (left, top)])
    as_shapes = len(cells) <= _MAX_VECTOR_CELLS
    collection = PolyCollection(
        cells,
        cmap="viridis_r",
        norm=norm,
        edgecolors="white" if len(cells) <= _MAX_OUTLINED_CELLS else "face",
        linewidths=0.4,
        rasterized=not as_shapes,
    )
    collection.set_array([time / scale for time in times])
    axes.add_collection(collection)
    draw_star(axes, best.workers, best.replicas, clip_on=False)
    for which, edges in ((X, columns), (Y, rows)):
        ends = list(edges.values())
        logarithmic = max(edges) > _MAX_LINEAR
        limits = ends[0][0], ends[-1][1]
        set_range(axes, which, limits, logarithmic=logarithmic, whole=True)
    axes.set_xlabel("workers of a replica")
    axes.set_ylabel("replicas of the model")
    axes.set_title(
        f"★ best: {best.words}, {epoch_text(best.epoch_ns)}",
        fontsize=10,
        loc="left",
    )
    axes.spines[["top", "right"]].set_visible(False)
    bar = axes.figure.colorbar(collection, ax=axes, pad=0.02)
    bar.set_label(f"time of an epoch ({unit})")
    if high > low:
        set_ticks(bar.ax.yaxis, low, high, ends=True)


def _edges(values: list[int]) -> dict[int, tuple[float, float]]:
    """Return the edges of each value's cell, half way to its neighbours."""
    middles = [(a + b) / 2 for a, b in pairwise(values)]
    last = values[-1] - middles[-1] if middles else 0.5
    edges = [values[0] - 0.5, *middles, values[-1] + last]
    return dict(zip(values, pairwise(edges), strict=True))
