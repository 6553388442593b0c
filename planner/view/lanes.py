"""Lanes of a chart: transfers as bars with hatched start-ups, passes as blocks, memory in use.

Several transfers drawn as one bar have a hatched part whose height is the start-ups' share of their
time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from planner.model.units import counted, format_bytes, format_ns, printable
from planner.solving.timeline import Interval, Memory
from planner.view.figure import note, told
from planner.view.style import BOUND, KINDS, MARK, ON_BAR, OUTLINE, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# ---
# Join narrow bars, so that thousands of transfers stay visible.
#
# Consecutive narrow bars of a kind become one bar: single bars would be thinner than a line or hide
# each other.
#
# Complexity: O(transfers).

NARROW = 3
"""Narrower bars may be joined (pixels)."""
_CLOSE = 1
"""Largest gap between joined bars (pixels)."""


def runs(spans: Sequence[tuple[str, int, int]], pixel_ns: float) -> Iterator[tuple[int, int]]:
    """Yield the first and the last index of each joined bar.

    Each span is a transfer's kind, start and end, sorted by start; `pixel_ns` is the duration of a
    pixel.
    """
    first = 0
    for place in range(1, len(spans) + 1):
        if place < len(spans):
            (kind, start, end), (next_kind, next_start, next_end) = spans[place - 1], spans[place]
            narrow = max(end - start, next_end - next_start) < NARROW * pixel_ns
            if kind == next_kind and narrow and next_start - end < _CLOSE * pixel_ns:
                continue
        yield first, place - 1
        first = place


PIXELS = 660
"""Approximate width of a chart's axis (points)."""
BAR = 0.62
"""Height of a bar (share of its lane)."""
_DIGIT_PIXELS = 6.5


@dataclass(frozen=True, slots=True)
class _Sent:
    """A transfer with its start-up, which begins at `start_ns`."""

    interval: Interval
    start_ns: int

    @property
    def startup_ns(self) -> int:
        return self.interval.start_ns - self.start_ns


def draw_transfers(
    axes: "Axes", intervals: Sequence[Interval], row: int, scale: float, end_ns: int
) -> None:
    """Draw the transfers of one lane; `intervals` are sorted by start."""
    pixel = max(end_ns, 1) / PIXELS
    sent = _sent(intervals)
    spans = [(bar.interval.kind, bar.start_ns, bar.interval.end_ns) for bar in sent]
    for first, last in runs(spans, pixel):
        run = sent[first : last + 1]
        opening, closing = run[0], run[-1]
        kind, start, end = opening.interval.kind, opening.start_ns, closing.interval.end_ns
        startups = sum(bar.startup_ns for bar in run)
        if end == start:
            continue
        if first == last:
            text = f"{printable(opening.interval.label)}, {span_text(start, end)}"
            draw_bar(axes, (start, end), row, scale, KINDS[kind], text)
            if startups:
                startup = start, opening.interval.start_ns
                draw_bar(axes, startup, row, scale, "white", f"start-up of {text}", hatch="////")
            start = opening.interval.start_ns
        else:
            text = f"{counted(len(run), 'transfer')}, {joined(run_labels(run))}"
            text += f": {span_text(start, end)}, {format_ns(startups)} of start-ups"
            draw_bar(axes, (start, end), row, scale, KINDS[kind], text, edge=KINDS[kind])
            if startups:
                share = startups / (end - start)
                draw_bar(
                    axes, (start, end), row, scale, "white", text, hatch="////", share=min(share, 1)
                )
        number = numbered(opening.interval.batch, closing.interval.batch)
        if end - start >= _DIGIT_PIXELS * (len(number) + 1) * pixel:
            box = {"facecolor": KINDS[kind], "edgecolor": "none", "pad": 0.8}
            _label(axes, (start, end), row, scale, number, box if first != last else None, size=9)


def draw_bar(
    axes: "Axes",
    span: tuple[int, int],
    row: float,
    scale: float,
    colour: str,
    text: str,
    *,
    height: float = BAR,
    hatch: str | None = None,
    share: float = 1,
    edge: str | None = None,
) -> None:
    """Draw a bar with a tooltip; bars never become too narrow to be seen.

    `span` is in ns, `scale` in ns per unit of the axis, `height` in lanes. `share` is the part of
    the height that is filled, from the top. The edge is white, to separate neighbours, unless the
    bar is narrow or `edge` is given.
    """
    from matplotlib.patches import Rectangle

    start, end = span
    left, right = axes.get_xlim()
    narrow = (end - start) / scale < NARROW * (right - left) / PIXELS
    line = edge or (OUTLINE if hatch else colour if narrow else "white")
    bar = Rectangle(
        (start / scale, row - height / 2),
        (end - start) / scale,
        height * share,
        facecolor=colour,
        edgecolor=line,
        hatch=hatch,
        linewidth=0.4 if hatch else 0.75,
        zorder=2.5 if hatch else 2,
    )
    axes.add_patch(told(bar, text))


def run_labels(run: Sequence[_Sent]) -> Iterable[str]:
    """Return the labels of the first and the last transfer, without their parameters."""
    return (printable(end.interval.label.partition(":")[0]) for end in (run[0], run[-1]))


def joined(names: Iterable[str]) -> str:
    """Return the first and the last name as a range."""
    return " to ".join(dict.fromkeys(names))


def numbered(first: int, last: int) -> str:
    """Return indices as a range of numbers from 1."""
    return f"{first + 1:,}" if first == last else f"{first + 1:,}–{last + 1:,}"


def span_text(start_ns: int, end_ns: int) -> str:
    """Return a time span as text."""
    return f"{format_ns(start_ns)} to {format_ns(end_ns)}"


def _sent(intervals: Iterable[Interval]) -> list[_Sent]:
    """Return the transfers, each with its start-up."""
    sent: list[_Sent] = []
    begun: dict[int, int] = {}
    for interval in intervals:
        if interval.kind == "startup":
            begun[interval.batch] = interval.start_ns
        else:
            sent.append(_Sent(interval, begun.pop(interval.batch, interval.start_ns)))
    return sent


# ---
# The lane of a processor: the ops of a backward and a forward pass.
#
# Consecutive ops form one block, with thin lines between ops wide enough to be seen. Waiting is
# white in a dashed frame.

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
        box = {"facecolor": KINDS[kind], "edgecolor": "none", "pad": 1}
        what = f"{counted(len(block), f'{kind} op')}, {span_text(start, end)}"
        draw_bar(axes, (start, end), row, scale, KINDS[kind], what, edge=KINDS[kind])
        labelled = False
        for op in block:
            length = op.end_ns - op.start_ns
            if length >= _APART * pixel:
                text = f"{printable(op.label)}, {span_text(op.start_ns, op.end_ns)}"
                draw_bar(axes, (op.start_ns, op.end_ns), row, scale, KINDS[kind], text)
                short = _short(op)
                if length >= _room(short, pixel):
                    _label(axes, (op.start_ns, op.end_ns), row, scale, short, box)
                    labelled = True
        if not labelled:
            for text in _of_block(block):
                if end - start >= _room(text, pixel):
                    _label(axes, (start, end), row, scale, text, box)
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
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        _label(axes, span, row, scale, "idle", box, color=SOFT)


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
    box: dict[str, Any] | None,
    *,
    size: int = 8,
    color: str = ON_BAR,
) -> None:
    """Write a text in the middle of a bar."""
    middle = (span[0] + span[1]) / 2 / scale
    look: dict[str, Any] = {"ha": "center", "va": "center", "parse_math": False}
    axes.text(middle, row, text, fontsize=size, color=color, bbox=box, **look)


# ---
# Memory in use over time: an area below the lanes of a chart, or a line of characters.

MEMORY_INCHES = 1.5
"""Height of the panel."""

_BARS = " ▁▂▃▄▅▆▇█"


def draw_memory(axes: "Axes", memory: Memory, scale: float, end_ns: int) -> None:
    """Draw the memory in use, its peak, and the limit."""
    times = [moment / scale for moment, _ in memory.levels] + [end_ns / scale]
    sizes = [size / 2**30 for _, size in memory.levels]
    axes.fill_between(times, [*sizes, sizes[-1]], step="post", color=KINDS["forward"], linewidth=0)
    axes.step(times, [*sizes, sizes[-1]], where="post", color=SOFT, linewidth=0.8)
    moment, most = memory.peak
    axes.plot([moment / scale], [most / 2**30], marker="o", markersize=4, color=MARK)
    left = moment > end_ns / 2
    style = {"ha": "right" if left else "left", "fontsize": 8, "color": MARK}
    place = (moment / scale, most / 2**30)
    note(axes, f"peak {format_bytes(most)}", place, (-6 if left else 6, 4), **style)
    top = most
    if memory.limit_bytes is not None and memory.limit_bytes <= 2 * most:
        top = max(top, memory.limit_bytes)
        axes.axhline(memory.limit_bytes / 2**30, color=BOUND, linewidth=1.1, linestyle=(0, (4, 3)))
        limit = f"limit {format_bytes(memory.limit_bytes)}"
        note(axes, limit, (0, memory.limit_bytes / 2**30), (4, 3), fontsize=8, color=BOUND)
    axes.set_ylim(0, top / 2**30 * 1.25 or 1)
    axes.set_ylabel("memory (GiB)", fontsize=8)


def memory_lane(memory: Memory, end_ns: int, columns: int) -> str:
    """Return one character per stretch of time: the most memory in use, relative to the peak."""
    _, most = memory.peak
    if not end_ns or not most:
        return " " * columns
    filled = [0] * columns
    last = memory.levels[-1][1]
    for (moment, size), (following, _) in pairwise((*memory.levels, (end_ns, last))):
        first = min(moment * columns // end_ns, columns - 1)
        stop = max(-(-following * columns // end_ns), first + 1)
        for column in range(first, min(stop, columns)):
            filled[column] = max(filled[column], size)
    return "".join(_BARS[-(-8 * size // most)] for size in filled)
