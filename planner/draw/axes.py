"""Linear and logarithmic axes of counts and times."""

from collections.abc import Sequence
from math import floor, log10
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from planner.draw.style import OUTLINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

__all__ = ["X", "Y", "draw_star", "label_rows", "set_range", "set_ticks"]

Which: TypeAlias = Literal["x", "y"]
X: Which = "x"
Y: Which = "y"

_NICE = (1, 2, 5)
_MAX_TICKS = 10
_APART = 0.06
"""A tick closer to an end of the axis (share of its length) is dropped."""


def set_range(
    axes: "Axes",
    which: Which,
    limits: tuple[float, float],
    *,
    logarithmic: bool,
    whole: bool = False,
) -> None:
    """Set the limits, the scale and round ticks of an axis; `whole` allows only whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    if logarithmic:
        axes.set(**{f"{which}scale": "log"})
        low, high = limits
        set_ticks(axis, max(low, 1) if whole else low, high)
    else:
        fewest = 1 if whole else 2
        locator = MaxNLocator(nbins=_MAX_TICKS, integer=whole, min_n_ticks=fewest)
        axis.set_major_locator(locator)
    axes.set(**{f"{which}lim": limits})


def set_ticks(axis: "Axis", low: float, high: float, *, ends: bool = False) -> None:
    """Set the ticks of a logarithmic axis: 1, 2, 5, 10, …, or evenly in a small range.

    `ends` adds ticks at `low` and `high`, in place of close ones.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    decades = range(floor(log10(low)), floor(log10(high)) + 1)
    ticks = [digit * 10.0**power for power in decades for digit in _NICE]
    ticks = [tick for tick in ticks if low <= tick <= high]
    if len(ticks) > _MAX_TICKS:
        ticks = [10.0**power for power in decades if low <= 10.0**power <= high]
    if len(ticks) < 3:
        ticks = [tick for tick in MaxNLocator(5).tick_values(low, high) if low <= tick <= high]
    if ends and low < high:
        apart = _APART * log10(high / low)
        inner = [tick for tick in ticks if min(log10(tick / low), log10(high / tick)) > apart]
        ticks = [low, *inner, high]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    texts = {tick: f"{tick:,.6g}" for tick in ticks}
    if ends:
        texts.update(zip((low, high), _told_apart(low, high), strict=True))
    axis.set_major_formatter(FuncFormatter(lambda tick, _: texts.get(tick, f"{tick:,.6g}")))


def draw_star(axes: "Axes", x: float, y: float, **style: Any) -> None:
    """Mark the chosen point with a star."""
    look = {"markersize": 13, "color": "white", "markeredgecolor": OUTLINE, "zorder": 5}
    axes.plot([x], [y], marker="*", linestyle="", **{**look, **style})


def label_rows(axes: "Axes", names: Sequence[str], size: float = 8) -> None:
    """Label the rows of a bar panel, the first on top, without tick marks."""
    axes.set_yticks(range(len(names)), names, fontsize=size, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _told_apart(low: float, high: float) -> list[str]:
    """Return two numbers with enough digits, at least three, to differ."""
    for digits in range(3, 17):
        texts = [_number(value, digits) for value in (low, high)]
        if texts[0] != texts[1]:
            break
    return texts


def _number(value: float, digits: int) -> str:
    """Return `digits` significant digits of a number; below a million all integer digits."""
    if 10**digits <= value < 10**6:
        return f"{value:,.0f}"
    return f"{value:,.{digits}g}"
