"""Measured communication times over the size, with fitted models, as a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from planner.model.units import unit_of
from planner.view.figure import figure_in, set_logarithmic, write_title
from planner.view.style import COLOURS, OUTLINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANEL_INCHES = (5.6, 4.2)
_ROOM = 1.5
"""The axes extend beyond the points by this factor."""
_UNIT = 1000
_STYLES = ((COLOURS[5], "-"), (COLOURS[6], "--"), (COLOURS[4], ":"))


@dataclass(frozen=True, slots=True)
class Curve:
    """The times of all sizes (bytes, increasing) at one depth, and up to three models of them."""

    title: str
    sizes: Sequence[int]
    times_ns: Sequence[tuple[int, int, int]]  # quartiles: first, median, third
    models_ns: Mapping[str, Sequence[int]]


def save_network(title: str, curves: Sequence[Curve], path: Path) -> None:
    """Draw one panel per curve into `path`, in the format of its suffix."""
    rows = [row for curve in curves for row in (*curve.times_ns, *curve.models_ns.values())]
    times = [max(time, 1) for row in rows for time in row]
    unit, scale = unit_of(max(times))
    limits = min(times) / scale / _ROOM, max(times) / scale * _ROOM
    with figure_in(path) as figure:
        width, height = _PANEL_INCHES
        figure.set_size_inches(width * len(curves), height)
        write_title(figure, title)
        panels = figure.subplots(1, len(curves), squeeze=False)[0]
        for axes, curve in zip(panels, curves, strict=True):
            _draw(axes, curve, scale)
            ends = curve.sizes[0] / _UNIT / _ROOM, curve.sizes[-1] / _UNIT * _ROOM
            set_logarithmic(axes, "x", ends)
            set_logarithmic(axes, "y", limits)
            axes.set_xlabel("size (kB)")
            axes.set_ylabel(f"time of the slowest rank ({unit})")
            axes.legend(fontsize=8.5, frameon=False, loc="upper left")


def _draw(axes: "Axes", curve: Curve, scale: int) -> None:
    sizes = [size / _UNIT for size in curve.sizes]
    for (name, times), (colour, style) in zip(curve.models_ns.items(), _STYLES, strict=False):
        heights = [time / scale for time in times]
        axes.plot(sizes, heights, color=colour, linestyle=style, linewidth=1.3, label=name)
    medians = [median / scale for _, median, _ in curve.times_ns]
    below = [max(median - low, 0) / scale for low, median, _ in curve.times_ns]
    above = [max(high - median, 0) / scale for _, median, high in curve.times_ns]
    axes.errorbar(
        sizes,
        medians,
        yerr=(below, above),
        linestyle="",
        ecolor=OUTLINE,
        elinewidth=0.7,
        label="measured (median, quartiles)",
        marker="o",
        markersize=4,
        markerfacecolor=COLOURS[0],
        markeredgecolor=OUTLINE,
        markeredgewidth=0.5,
    )
    axes.set_title(curve.title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)
