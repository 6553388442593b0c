"""Sensitivity as bars: the factors of each constant between which the configuration stays best."""

from typing import TYPE_CHECKING

from planner.draw.axes import label_rows, set_range
from planner.draw.chart import shortened
from planner.draw.scaling import factor_text
from planner.draw.style import COLOURS, OUTLINE
from planner.printing import printable
from planner.views import ConstantsRegret, Range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_ranges"]

_LEAST = 4.0
"""The axis spans at least this factor in both directions."""
_MOST = 1000.0
"""The axis spans at most this factor; longer bars end with an arrow."""
_BEYOND = 1.25
"""A bar without an end exceeds the farthest end by this factor."""
_ROOM = 1.07
"""The logarithmic axis is this factor longer, for the numbers behind the ends."""
_MAX_NAME = 24


def draw_ranges(axes: "Axes", ranges: tuple[Range, ...], regret: ConstantsRegret | None) -> None:
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
                axes.annotate(
                    factor_text(end),
                    (at, row),
                    (side * (4 if shown else 8), 0),
                    textcoords="offset points",
                    ha="left" if side > 0 else "right",
                    va="center",
                    fontsize=8,
                )
    axes.axvline(1, color=OUTLINE, linewidth=0.8)
    names = [shortened(printable(factors.constant), _MAX_NAME) for factors in ranges]
    label_rows(axes, names)
    set_range(axes, "x", (reach**-_ROOM, reach**_ROOM), logarithmic=True)
    axes.set_xlabel("factor of the constant, all others as given")
    title = "factors of a constant with which this stays the best"
    if regret is not None:
        title += f"; {regret.words}"
    axes.set_title(title, fontsize=10, loc="left")
