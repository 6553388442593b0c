"""The lane of a network: its transfers as bars with hatched start-ups.

Several transfers drawn as one bar have a hatched part whose height is the start-ups' share of their
time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.model.units import counted, format_ns, printable
from planner.solving.timeline import Interval
from planner.view.figure import told
from planner.view.style import KINDS, ON_BAR, OUTLINE

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
            middle = (start + (end - start) / 2) / scale
            box = {"facecolor": KINDS[kind], "edgecolor": "none", "pad": 0.8}
            axes.text(
                middle,
                row,
                number,
                ha="center",
                va="center",
                fontsize=9,
                color=ON_BAR,
                bbox=box if first != last else None,
            )


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
