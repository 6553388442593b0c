"""Create matplotlib figures and save them as SVG, PNG or PDF."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from io import StringIO
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from planner.model.errors import MissingExtraError
from planner.model.units import printable
from planner.view.chart import logarithmic_ticks

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

    ArtistT = TypeVar("ArtistT", bound=Artist)


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


_MAX_TICKS = 8


def set_logarithmic(axes: "Axes", which: Literal["x", "y"], limits: tuple[float, float]) -> None:
    """Make an axis logarithmic, with round ticks: 1, 2, 5, 10, …, or evenly in a small range."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set(**{f"{which}scale": "log", f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    ticks = logarithmic_ticks(min(limits), max(limits), _MAX_TICKS)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.6g}"))


def note(
    axes: "Axes", text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any
) -> "Annotation":
    """Write a text beside a point; `offset` is in points, and names are no formulas."""
    look = {"textcoords": "offset points", "parse_math": False, **style}
    return axes.annotate(printable(text), at, offset, **look)
