"""The lane of a processor: the ops of a backward and a forward pass.

Consecutive ops form one block, with thin lines between ops wide enough to be seen. Waiting is white
in a dashed frame.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

from planner.model.units import counted, printable
from planner.solving.timeline import Interval
from planner.view.figure import told
from planner.view.lanes import BAR, PIXELS, draw_bar, joined, numbered, span_text
from planner.view.style import KINDS, ON_BAR, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_APART = 5
"""Smallest width of an op that gets its own frame (points)."""
_CHARACTER = 5.6
"""Approximate width of a character (points)."""


def pass_blocks(intervals: list[Interval]) -> list[list[Interval]]:
    """Return runs of ops of one pass without gaps; empty ops are left out."""
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
    """Draw the ops of one lane; `intervals` are sorted by start."""
    pixel = max(end_ns, 1) / PIXELS
    blocks = pass_blocks(intervals)
    for block in blocks:
        start, end, kind = block[0].start_ns, block[-1].end_ns, block[0].kind
        what = counted(len(block), f"{kind} op")
        draw_bar(
            axes,
            (start, end),
            row,
            scale,
            KINDS[kind],
            f"{what}, {span_text(start, end)}",
            edge=KINDS[kind],
        )
        labelled = False
        for op in block:
            length = op.end_ns - op.start_ns
            if length >= _APART * pixel:
                text = f"{printable(op.label)}, {span_text(op.start_ns, op.end_ns)}"
                draw_bar(axes, (op.start_ns, op.end_ns), row, scale, KINDS[kind], text)
                short = _short(op)
                if length >= _room(short, pixel):
                    _label(axes, (op.start_ns, op.end_ns), row, scale, short, KINDS[kind])
                    labelled = True
        if not labelled:
            for text in _of_block(block):
                if end - start >= _room(text, pixel):
                    _label(axes, (start, end), row, scale, text, KINDS[kind])
                    break
    for block, following in pairwise(blocks):
        _draw_waiting(axes, (block[-1].end_ns, following[0].start_ns), row, scale, pixel)


def _draw_waiting(
    axes: "Axes", span: tuple[int, int], row: int, scale: float, pixel: float
) -> None:
    from matplotlib.patches import Rectangle

    start, end = span
    if end - start < _APART * pixel:
        return
    frame = Rectangle(
        (start / scale, row - BAR / 2),
        (end - start) / scale,
        BAR,
        facecolor="none",
        edgecolor=SOFT,
        linewidth=0.6,
        linestyle=(0, (3, 3)),
    )
    axes.add_patch(told(frame, f"nothing computed, {span_text(start, end)}"))
    if end - start >= _room("idle", pixel):
        _label(axes, span, row, scale, "idle", "white", colour=SOFT)


def _short(op: Interval) -> str:
    """Return an op's label: the number of its batch, or its name."""
    return printable(op.label) if op.batch < 0 else numbered(op.batch, op.batch)


def _of_block(block: list[Interval]) -> tuple[str, ...]:
    """Return labels for a block of narrow ops, the longest first."""
    first, last = block[0], block[-1]
    if first.batch < 0:
        return (first.kind,)
    return (f"batches {numbered(first.batch, last.batch)}", joined([_short(first), _short(last)]))


def _room(text: str, pixel: float) -> float:
    return _CHARACTER * (len(text) + 1) * pixel


def _label(
    axes: "Axes",
    span: tuple[int, int],
    row: int,
    scale: float,
    text: str,
    background: str,
    *,
    colour: str = ON_BAR,
) -> None:
    axes.text(
        (span[0] + span[1]) / 2 / scale,
        row,
        text,
        ha="center",
        va="center",
        fontsize=8,
        color=colour,
        parse_math=False,
        bbox={"facecolor": background, "edgecolor": "none", "pad": 1},
    )
