"""The lane of a processor that runs the ops of a backward and a forward pass.

Ops that follow each other form one block, with thin lines between those wide enough to be seen;
what the processor waits stays white.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

from planner.draw.style import BACKWARD, FORWARD, MAX_OUTLINED, OUTLINE
from planner.printing import printable
from planner.timeline import Interval, Kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_passes", "pass_blocks"]

_COLOURS: dict[Kind, str] = {"backward": BACKWARD, "forward": FORWARD}
_APART = 0.004
"""Share of the width an op needs to be set apart from its neighbours."""
_CHARACTER_SHARE = 0.0085
"""Share of the width a character takes."""


def pass_blocks(intervals: list[Interval]) -> list[list[Interval]]:
    """Return runs of ops of one pass that follow each other without a gap; none is empty."""
    blocks: list[list[Interval]] = []
    for interval in intervals:
        if interval.end_ns == interval.start_ns:
            continue
        last = blocks[-1][-1] if blocks else None
        if last is not None and last.kind == interval.kind and last.end_ns == interval.start_ns:
            blocks[-1].append(interval)
        else:
            blocks.append([interval])
    return blocks


def draw_passes(
    axes: "Axes", intervals: list[Interval], row: int, scale: float, end_ns: int
) -> None:
    """Draw the ops of one lane; `intervals` come by start time."""
    blocks = pass_blocks(intervals)
    outline = OUTLINE if len(blocks) <= MAX_OUTLINED else None
    for kind, colour in _COLOURS.items():
        own = [block for block in blocks if block[0].kind == kind]
        axes.broken_barh(
            [
                (block[0].start_ns / scale, (block[-1].end_ns - block[0].start_ns) / scale)
                for block in own
            ],
            (row - 0.31, 0.62),
            facecolor=colour,
            edgecolor=outline or colour,
            linewidth=0.5,
        )
    apart = [
        op.end_ns / scale
        for block in blocks
        for op, behind in pairwise(block)
        if min(op.end_ns - op.start_ns, behind.end_ns - behind.start_ns) >= _APART * end_ns
    ]
    axes.vlines(apart, row - 0.31, row + 0.31, color=OUTLINE, linewidth=0.4)

    def label(start_ns: int, stop_ns: int, text: str, background: str) -> bool:
        shown = printable(text)
        fits = stop_ns - start_ns >= _CHARACTER_SHARE * (len(shown) + 1) * end_ns
        if fits:
            middle = (start_ns + (stop_ns - start_ns) / 2) / scale
            axes.text(
                middle,
                row,
                shown,
                ha="center",
                va="center",
                fontsize=8,
                color="#666666" if background == "white" else "black",
                parse_math=False,
                bbox={"facecolor": background, "edgecolor": "none", "pad": 1},
            )
        return fits

    for block in blocks:
        colour = _COLOURS[block[0].kind]
        labelled = [label(op.start_ns, op.end_ns, op.label, colour) for op in block]
        if not any(labelled):
            label(block[0].start_ns, block[-1].end_ns, block[0].kind, colour)
    for block, following in pairwise(blocks):
        label(block[-1].end_ns, following[0].start_ns, "stall", "white")
