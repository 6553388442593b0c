"""Create matplotlib figures and save them as SVG, PNG or PDF."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Literal

from planner.view.chart import logarithmic_ticks

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
    ticks = logarithmic_ticks(min(limits), max(limits), _MAX_TICKS)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.6g}"))
