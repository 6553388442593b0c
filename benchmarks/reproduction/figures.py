"""Create matplotlib figures and save them as SVG, PNG or PDF."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, floor, log10
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Literal

from planner.view.chart import ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTLINE = "#333333"

_MAX_LINE = 124
"""Longest line of a title (characters)."""

_MAX_TICKS = 8


@contextmanager
def figure_in(path: Path) -> Iterator["Figure"]:
    """Yield an empty figure, and save it after the block in the format of the path's suffix.

    The same drawing gives the same SVG.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with (
        mpl.rc_context({"svg.hashsalt": "planner", "hatch.linewidth": 0.6}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph")  # the font lacks some scripts
        figure = Figure(dpi=140, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        svg = path.suffix == ".svg"
        figure.savefig(path, metadata={"Date": None} if svg else None)


def write_title(figure: "Figure", title: str) -> None:
    """Write the title above a figure."""
    lines = "\n".join(wrap(title, _MAX_LINE))
    figure.suptitle(lines, fontsize=11, x=0.01, ha="left", parse_math=False)


def set_logarithmic(axes: "Axes", which: Literal["x", "y"], limits: tuple[float, float]) -> None:
    """Make an axis logarithmic, with round ticks: 1, 2, 5, 10, …, or evenly in a small range."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set(**{f"{which}scale": "log", f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    places = logarithmic_ticks(min(limits), max(limits), _MAX_TICKS)
    axis.set_major_locator(FixedLocator(places))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.6g}"))


def logarithmic_ticks(low: float, high: float, count: int) -> list[float]:
    """Return round numbers for a logarithmic axis: 1, 2, 5 of each decade, or decades only.

    Short ranges have evenly spaced numbers.
    """
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    for digits in ((1, 2, 5), (1,)):
        round_numbers = [digit * 10.0**decade for decade in decades for digit in digits]
        round_numbers = [tick for tick in round_numbers if low <= tick <= high]
        if 3 <= len(round_numbers) <= count + 2:
            return round_numbers
    return round_numbers if len(round_numbers) >= 3 else ticks(low, high, 5)
