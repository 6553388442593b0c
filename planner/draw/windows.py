"""The windows of transfers: a thin line from ready to due, the transfer itself thick on it.

What of a transfer comes after it is due has a dark core.
"""

from typing import TYPE_CHECKING

from planner.draw.chart import shortened
from planner.draw.style import COLOURS, OUTLINE, OVERRUN
from planner.printing import printable
from planner.timeline import Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MAX_WINDOWS", "draw_windows", "panel_inches"]

MAX_WINDOWS = 400
"""More windows are left out: their rows would be thinner than a line."""
_MAX_LABELLED = 40
_LABEL_CHARACTERS = 32
_ROW_INCHES = 0.17
_CROWDED_INCHES = 3.0


def panel_inches(count: int) -> float:
    """Return the height of the panel of so many windows."""
    if count <= _MAX_LABELLED:
        return max(0.6, _ROW_INCHES * (count + 1))
    return max(_CROWDED_INCHES, 0.0125 * count)


def draw_windows(axes: "Axes", windows: tuple[Window, ...], scale: float) -> None:
    """Draw one row a window, the first one on top."""
    labelled = len(windows) <= _MAX_LABELLED
    lines: dict[str, list[tuple[int, int, int]]] = {}
    bars: dict[str, list[tuple[int, int, int]]] = {}
    late: list[tuple[int, int, int]] = []
    for row, window in enumerate(windows):
        colour = COLOURS[window.batch % len(COLOURS)]
        if window.due_ns > window.ready_ns:
            lines.setdefault(colour, []).append((row, window.ready_ns, window.due_ns))
        bars.setdefault(colour, []).append((row, window.start_ns, window.end_ns))
        if window.end_ns > window.due_ns:
            late.append((row, max(window.due_ns, window.start_ns), window.end_ns))
    for colour, spans in lines.items():
        rows, starts, ends = zip(*spans, strict=True)
        axes.hlines(
            rows,
            [start / scale for start in starts],
            [end / scale for end in ends],
            color=colour,
            linewidth=1.6 if labelled else 0.6,
        )
    if labelled:
        for moments in (
            [window.ready_ns for window in windows],
            [window.due_ns for window in windows],
        ):
            axes.plot(
                [moment / scale for moment in moments],
                range(len(windows)),
                linestyle="",
                marker="|",
                markersize=6,
                color=OUTLINE,
            )
    thick, core = (0.62, 0.2) if labelled else (0.9, 0.4)
    for colour, height, spans in (
        *((colour, thick, spans) for colour, spans in bars.items()),
        (OVERRUN, core, late),
    ):
        axes.barh(
            [row for row, _, _ in spans],
            [(end - start) / scale for _, start, end in spans],
            height,
            left=[start / scale for _, start, _ in spans],
            color=colour,
            edgecolor=OUTLINE if labelled and height == thick else colour,
            linewidth=0.5 if height == thick else 0,
            zorder=3,
        )
    axes.set_ylim(len(windows) - 0.4, -0.6)
    if labelled:
        names = [
            shortened(
                f"{window.batch + 1}: {printable(window.label.partition(': ')[2])}",
                _LABEL_CHARACTERS,
            )
            for window in windows
        ]
        axes.set_yticks(range(len(windows)), names, fontsize=7, parse_math=False)
    else:
        axes.set_yticks([0, len(windows) - 1], ["1", str(len(windows))], fontsize=7)
        axes.set_ylabel("transfer windows")
