"""A figure on its way into a file: the same for every picture."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from planner.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["figure_in", "saving", "write_title"]


class Titled(Protocol):
    """What has a title."""

    @property
    def title(self) -> str:
        """What stands above it."""


Drawn = TypeVar("Drawn", bound=Titled)


@contextmanager
def figure_in(path: Path, *, arranged: bool = True) -> Iterator["Figure"]:
    """Yield an empty figure, and save what has been drawn on it.

    The format is that of the file's suffix (``.svg``, ``.png``, ``.pdf``); the same drawing gives
    the same SVG.

    Parameters
    ----------
    path : Path
        The file.
    arranged : bool
        Whether matplotlib makes room for all texts by itself.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
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
        warnings.filterwarnings("ignore", message="Glyph")  # names in scripts the font lacks
        figure = Figure(dpi=140, layout="constrained" if arranged else None)
        FigureCanvasAgg(figure)
        yield figure
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def write_title(figure: "Figure", title: str) -> None:
    """Write what a figure is about above it."""
    figure.suptitle(title, fontsize=11, x=0.01, ha="left", parse_math=False)


def saving(fill: "Callable[[Figure, Drawn], Any]") -> Callable[[Drawn, Path], None]:
    """Return what draws a chart, under its title, into a file of the format of its suffix.

    Parameters
    ----------
    fill : callable
        Draws on an empty figure what a chart, which has a title, shows.
    """

    def save(chart: Drawn, path: Path) -> None:
        with figure_in(path) as figure:
            write_title(figure, chart.title)
            fill(figure, chart)

    return save
