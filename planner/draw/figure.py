"""Create matplotlib figures and save them as SVG, PNG or PDF."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from io import StringIO
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from planner.errors import MissingExtraError
from planner.printing import printable

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

    ArtistT = TypeVar("ArtistT", bound=Artist)

__all__ = ["figure_in", "saving", "title_lines", "told", "write_title"]

_MAX_LINE = 124
"""Longest line of a title (characters)."""


class Titled(Protocol):
    """A chart with a title."""

    @property
    def title(self) -> str:
        """The text above the chart."""


Drawn = TypeVar("Drawn", bound=Titled)


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


def saving(fill: "Callable[[Figure, Drawn], Any]") -> Callable[[Drawn, Path], None]:
    """Return a function that draws a titled chart by `fill` and saves it."""

    def save(chart: Drawn, path: Path) -> None:
        with figure_in(path) as figure:
            write_title(figure, chart.title)
            fill(figure, chart)

    return save
