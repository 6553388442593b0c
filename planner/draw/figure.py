"""A figure on its way into a file: the same for every picture."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["figure_in"]


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
