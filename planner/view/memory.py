"""Memory in use over time: an area below the lanes of a chart, or a line of characters."""

from itertools import pairwise
from typing import TYPE_CHECKING

from planner.model.units import format_bytes
from planner.solving.timeline import Memory
from planner.view.style import BOUND, KINDS, MARK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEMORY_INCHES = 1.5
"""Height of the panel."""

_BARS = " ▁▂▃▄▅▆▇█"


def draw_memory(axes: "Axes", memory: Memory, scale: float, end_ns: int) -> None:
    """Draw the memory in use, its peak, and the limit."""
    times = [moment / scale for moment, _ in memory.levels] + [end_ns / scale]
    sizes = [size / 2**30 for _, size in memory.levels]
    axes.fill_between(times, [*sizes, sizes[-1]], step="post", color=KINDS["forward"], linewidth=0)
    axes.step(times, [*sizes, sizes[-1]], where="post", color=SOFT, linewidth=0.8)
    moment, most = memory.peak
    axes.plot([moment / scale], [most / 2**30], marker="o", markersize=4, color=MARK)
    left = moment > end_ns / 2
    axes.annotate(
        f"peak {format_bytes(most)}",
        (moment / scale, most / 2**30),
        (-6 if left else 6, 4),
        textcoords="offset points",
        ha="right" if left else "left",
        fontsize=8,
        color=MARK,
    )
    top = most
    if memory.limit_bytes is not None and memory.limit_bytes <= 2 * most:
        top = max(top, memory.limit_bytes)
        axes.axhline(memory.limit_bytes / 2**30, color=BOUND, linewidth=1.1, linestyle=(0, (4, 3)))
        axes.annotate(
            f"limit {format_bytes(memory.limit_bytes)}",
            (0, memory.limit_bytes / 2**30),
            (4, 3),
            textcoords="offset points",
            fontsize=8,
            color=BOUND,
        )
    axes.set_ylim(0, top / 2**30 * 1.25 or 1)
    axes.set_ylabel("memory (GiB)", fontsize=8)


def memory_lane(memory: Memory, end_ns: int, columns: int) -> str:
    """Return one character per stretch of time: the most memory in use, relative to the peak."""
    _, most = memory.peak
    if not end_ns or not most:
        return " " * columns
    filled = [0] * columns
    last = memory.levels[-1][1]
    for (moment, size), (following, _) in pairwise((*memory.levels, (end_ns, last))):
        first = min(moment * columns // end_ns, columns - 1)
        stop = max(-(-following * columns // end_ns), first + 1)
        for column in range(first, min(stop, columns)):
            filled[column] = max(filled[column], size)
    return "".join(_BARS[-(-8 * size // most)] for size in filled)
