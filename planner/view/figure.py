"""Create matplotlib figures and save them as SVG, PNG or PDF."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from math import log10
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from planner.model.errors import MissingExtraError
from planner.model.units import printable
from planner.view.chart import Chart, View, logarithmic_ticks
from planner.view.style import COLOURS, OUTLINE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

    ArtistT = TypeVar("ArtistT", bound=Artist)


POINTS: Mapping[str, Any] = {
    "marker": "o",
    "markersize": 4,
    "markerfacecolor": COLOURS[0],
    "markeredgecolor": OUTLINE,
    "markeredgewidth": 0.5,
}
"""How points of a curve look."""

_MAX_LINE = 124
"""Longest line of a title (characters)."""


@contextmanager
def figure_in(path: Path, *, arranged: bool = True) -> Iterator["Figure"]:
    """Yield an empty figure, and save it after the block in the format of the path's suffix.

    The same drawing gives the same SVG. `arranged` lets matplotlib make room for all texts. Raises
    MissingExtraError without matplotlib.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None

    with (
        mpl.rc_context({"svg.hashsalt": "planner", "hatch.linewidth": 0.6}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph")  # the font lacks some scripts
        figure = Figure(dpi=140, layout="constrained" if arranged else None)
        FigureCanvasAgg(figure)
        yield figure
        if path.suffix == ".svg":
            path.write_text(_as_svg(figure), encoding="utf-8")
        else:
            figure.savefig(path)


def told(artist: "ArtistT", text: str) -> "ArtistT":
    """Add a tooltip to an artist, shown in SVG only, and return the artist."""
    artist.set_gid(text)
    return artist


def _as_svg(figure: "Figure") -> str:
    """Return the figure as SVG, with tooltips as title elements."""
    texts: list[str] = []
    for artist in figure.findobj(lambda part: part.get_gid() is not None):
        texts.append(str(artist.get_gid()))
        artist.set_gid(f"told-{len(texts)}")
    stream = StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    before, *parts = stream.getvalue().split('<g id="told-')
    whole = [before]
    for part in parts:
        number, rest = part.split('">', 1)
        text = escape(printable(texts[int(number) - 1]))
        whole.append(f'<g id="told-{number}"><title>{text}</title>{rest}')
    return "".join(whole)


def title_lines(title: str) -> str:
    """Return the title, wrapped."""
    return "\n".join(wrap(title, _MAX_LINE))


def write_title(figure: "Figure", title: str) -> None:
    """Write the title above a figure."""
    figure.suptitle(title_lines(title), fontsize=11, x=0.01, ha="left", parse_math=False)


def saving(fill: "Callable[[Figure, Chart[View]], None]") -> Callable[[Chart[View], Path], None]:
    """Return a function that draws a chart by `fill` below its title and saves it."""

    def save(chart: Chart[View], path: Path) -> None:
        with figure_in(path) as figure:
            write_title(figure, chart.title)
            fill(figure, chart)

    return save


# ---
# Linear and logarithmic axes of counts and times.

Which: TypeAlias = Literal["x", "y"]
X: Which = "x"
Y: Which = "y"

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
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ticks = logarithmic_ticks(low, high, _MAX_TICKS - 2)
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


def note(
    axes: "Axes", text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any
) -> "Annotation":
    """Write a text beside a point; `offset` is in points, and names are no formulas."""
    look = {"textcoords": "offset points", "parse_math": False, **style}
    return axes.annotate(printable(text), at, offset, **look)


def draw_rows(
    axes: "Axes", lengths: Sequence[float], colours: str | Sequence[str], **style: Any
) -> None:
    """Draw one horizontal bar per row."""
    look = {"height": 0.72, "edgecolor": OUTLINE, "linewidth": 0.4, **style}
    axes.barh(range(len(lengths)), lengths, color=colours, **look)


def write_ends(axes: "Axes", ends: Sequence[tuple[float, str]], room: float) -> None:
    """Write each bar's value after its end, with `room` as share of the longest bar."""
    axes.set_xlim(0, max(end for end, _ in ends) * (1 + room) or 1)
    for row, (end, text) in enumerate(ends):
        note(axes, text, (end, row), (4, 0), va="center", fontsize=8)


def legend_above(axes: "Axes", columns: int, corner: Literal["lower left", "lower right"]) -> None:
    """Write the legend above a corner of the axes; names are no formulas."""
    legend = axes.legend(
        loc=corner,
        bbox_to_anchor=(0 if corner == "lower left" else 1, 1),
        ncols=columns,
        frameon=False,
        fontsize=8.5,
        borderaxespad=0.2,
        borderpad=0 if corner == "lower left" else None,
        handlelength=1.2,
        columnspacing=1.2,
    )
    for written in legend.get_texts():
        written.set_parse_math(False)


def frame(axes: "Axes", title: str, *, grid: bool = False) -> None:
    """Write the title of a panel, and leave only the frame's lower left sides."""
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    if grid:
        axes.grid(visible=True, color="#E4E4E4", linewidth=0.6)
        axes.set_axisbelow(True)


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
