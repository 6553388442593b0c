"""A Gantt chart as data: the bars, labels and rows that charts and pages draw.

There is one lane per serial resource: transfers are bars with hatched start-ups, ops of one pass
form blocks, and waiting is a dashed frame. Below, each transfer has a row: a line from ready to
due, with the transfer as a bar whose part after the due time is red.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from planner.model.layers import module_range
from planner.model.units import counted, format_bytes, format_ns, printable
from planner.solving.timeline import COMPUTES, KIND_NAMES, Interval, Kind, Timeline, Window
from planner.view.style import KINDS

Look: TypeAlias = Kind | Literal["idle", "late", "window"]
"""What a bar or an entry of the legend looks like."""

NARROW = 3
"""Narrower bars may be joined (pixels)."""
_CLOSE = 1
"""Largest gap between joined bars (pixels)."""
_APART = 6
"""Smallest width of an op that gets its own frame (pixels)."""
_CHARACTER = 6.6
"""Width of a character in a bar (pixels)."""
_ROWS, _LABEL = 60, 38
"""Most rows, and characters of a row's name."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar with a tooltip, and with a text if there is room for it."""

    start_ns: int
    end_ns: int
    look: Look
    tooltip: str
    text: str = ""
    share: float = 1  # of the height, from the top
    apart: bool = False  # separated from its neighbours by a thin line


@dataclass(frozen=True, slots=True)
class Row:
    """One or several consecutive transfers: from the first ready to the last due time."""

    name: str
    ready_ns: int
    due_ns: int
    tooltip: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything between the two axes of a Gantt chart."""

    lanes: tuple[tuple[Bar, ...], ...]  # of each resource, in drawing order
    rows: tuple[Row, ...]
    legend: tuple[tuple[Look, str], ...]


def scene_of(timeline: Timeline, width: float, end_ns: int) -> Scene:
    """Return the bars and labels of a timeline on an axis from 0 to `end_ns`, `width` pixels wide.

    O(n log n).
    """
    pixel = max(end_ns, 1) / width
    sizes = {window.batch: window.size_bytes for window in timeline.windows}
    lanes = []
    for resource in timeline.resources:
        intervals = timeline.on(resource)
        if any(interval.kind in COMPUTES for interval in intervals):
            lanes.append(tuple(_passes(intervals, pixel)))
        else:
            lanes.append(tuple(_transfers(intervals, sizes, pixel)))
    each = -(-len(timeline.windows) // _ROWS) or 1
    starts = range(0, len(timeline.windows), each)
    windows = [timeline.windows[start : start + each] for start in starts]
    largest = max((sum(sent.size_bytes or 0 for sent in row) for row in windows), default=0)
    rows = tuple(_row(row, pixel, largest) for row in windows)
    return Scene(tuple(lanes), rows, tuple(_legend(timeline, lanes, rows)))


def runs(spans: Sequence[tuple[str, int, int]], pixel_ns: float) -> Iterator[tuple[int, int]]:
    """Yield the first and the last index of each joined bar. O(n).

    Each span is a transfer's kind, start and end, sorted by start; `pixel_ns` is the duration of a
    pixel. Consecutive narrow bars of a kind become one bar: single bars would be thinner than a
    line or hide each other.
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


def _transfers(
    intervals: Sequence[Interval], sizes: Mapping[int, int | None], pixel: float
) -> Iterator[Bar]:
    """Yield the transfers of a lane; of joined ones, start-ups fill their share of the height."""
    begun: dict[int, int] = {}
    sent: list[Interval] = []
    starts: list[int] = []
    for interval in intervals:
        if interval.kind == "startup":
            begun[interval.batch] = interval.start_ns
        else:
            sent.append(interval)
            starts.append(begun.pop(interval.batch, interval.start_ns))
    spans = [(it.kind, start, it.end_ns) for it, start in zip(sent, starts, strict=True)]
    for first, last in runs(spans, pixel):
        run, start, end = sent[first : last + 1], starts[first], sent[last].end_ns
        if end == start:
            continue
        begin = run[0].start_ns if first == last else start
        number = numbered(run[0].batch, run[-1].batch)
        text = number if end - begin >= _CHARACTER * (len(number) + 1) * pixel else ""
        size = _size([sizes.get(interval.batch) for interval in run])
        startups = sum(it.start_ns for it in run) - sum(starts[first : last + 1])
        if first == last:
            tooltip = f"{printable(run[0].label)}{size}, {span_text(start, end)}"
            if startups:
                yield Bar(start, begin, "startup", f"start-up of {tooltip}")
            yield Bar(begin, end, run[0].kind, tooltip, text, apart=True)
        else:
            names = [printable(it.label.partition(":")[0]) for it in (run[0], run[-1])]
            tooltip = f"{counted(len(run), 'transfer')}, {_joined(names)}{size}: "
            tooltip += f"{span_text(start, end)}, {format_ns(startups)} of start-ups"
            yield Bar(start, end, run[0].kind, tooltip, text)
            if startups:
                yield Bar(start, end, "startup", tooltip, share=min(startups / (end - start), 1))


def _passes(intervals: Sequence[Interval], pixel: float) -> Iterator[Bar]:
    """Yield the ops of a lane: blocks, the ops in them that are wide enough, and the waiting."""

    def fits(text: str, length: int) -> bool:
        return length >= _CHARACTER * (len(text) + 1) * pixel

    blocks = pass_blocks(intervals)
    for block in blocks:
        start, end, kind = block[0].start_ns, block[-1].end_ns, block[0].kind
        wide = [op for op in block if op.end_ns - op.start_ns >= _APART * pixel]
        ops = []
        for op in wide:
            tooltip, short = (
                f"{printable(op.label)}, {span_text(op.start_ns, op.end_ns)}",
                _short(op),
            )
            text = short if fits(short, op.end_ns - op.start_ns) else ""
            ops.append(Bar(op.start_ns, op.end_ns, kind, tooltip, text, apart=True))
        named = any(op.text for op in ops)
        text = next((text for text in _of_block(block) if fits(text, end - start)), "")
        tooltip = f"{counted(len(block), f'{kind} op')}, {span_text(start, end)}"
        yield Bar(start, end, kind, tooltip, "" if named else text)
        yield from ops
    for block, following in pairwise(blocks):
        start, end = block[-1].end_ns, following[0].start_ns
        if end - start >= _APART * pixel:
            tooltip = f"nothing computed, {span_text(start, end)}"
            yield Bar(start, end, "idle", tooltip, "idle" if fits("idle", end - start) else "")


def pass_blocks(intervals: Sequence[Interval]) -> list[list[Interval]]:
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


def _row(windows: Sequence[Window], pixel: float, largest: int) -> Row:
    """Return the row of consecutive transfers; `largest` has the unit of all rows' bytes."""
    tooltip = _tooltip(windows)
    bars = []
    spans = [(sent.kind, sent.start_ns, sent.end_ns) for sent in windows]
    for first, last in runs(spans, pixel):
        text = tooltip if len(windows) == 1 else _tooltip(windows[first : last + 1])
        bars.append(Bar(spans[first][1], spans[last][2], windows[first].kind, text, apart=True))
    late = [sent for sent in windows if sent.end_ns > sent.due_ns]
    overruns = [("", max(sent.due_ns, sent.start_ns), sent.end_ns) for sent in late]
    for first, last in runs(overruns, pixel):
        text = f"past due: {_tooltip(late[first : last + 1])}"
        bars.append(Bar(overruns[first][1], overruns[last][2], "late", text))
    number = numbered(windows[0].batch, windows[-1].batch)
    sizes = [sent.size_bytes for sent in windows if sent.size_bytes is not None]
    size = f" · {format_bytes(sum(sizes), largest)}" if sizes else ""
    names = [name for sent in windows for name in sent.names or (sent.label.partition(": ")[2],)]
    carried = [printable(name) for name in dict.fromkeys(names)]
    room = _LABEL - len(number) - len(size) - 3
    return Row(
        f"{number} · {module_range(carried, room)}{size}",
        min(sent.ready_ns for sent in windows),
        max(sent.due_ns for sent in windows),
        tooltip,
        tuple(bars),
    )


def _legend(
    timeline: Timeline, lanes: Sequence[Sequence[Bar]], rows: Sequence[Row]
) -> Iterator[tuple[Look, str]]:
    """Yield each look in the scene with its name."""
    present = {interval.kind for interval in timeline.intervals}
    yield from ((kind, KIND_NAMES[kind]) for kind in KINDS if kind in present)
    drawn = {bar.look for bars in (*lanes, *(row.bars for row in rows)) for bar in bars}
    if "startup" in drawn:
        yield "startup", "start-up"
    if "idle" in drawn:
        yield "idle", "idle"
    if rows:
        several = len(rows) < len(timeline.windows)
        yield "window", "first ready to last due" if several else "ready to due"
    if "late" in drawn:
        yield "late", "past due"


def numbered(first: int, last: int) -> str:
    """Return indices as a range of numbers from 1."""
    return f"{first + 1:,}" if first == last else f"{first + 1:,}–{last + 1:,}"


def span_text(start_ns: int, end_ns: int) -> str:
    """Return a time span as text."""
    return f"{format_ns(start_ns)} to {format_ns(end_ns)}"


def _tooltip(windows: Sequence[Window]) -> str:
    """Return the tooltip of a row or of a part of it."""
    first, last = windows[0], windows[-1]
    span = span_text(first.start_ns, last.end_ns)
    size = _size([sent.size_bytes for sent in windows])
    if len(windows) == 1:
        window = f"ready {format_ns(first.ready_ns)}, due {format_ns(first.due_ns)}"
        return f"{first.label}{size}, {span}; {window}"
    what = f"{counted(len(windows), 'transfer')}, {KIND_NAMES[first.kind]}"
    return f"{what} {numbered(first.batch, last.batch)}{size}, {span}"


def _size(sizes: Sequence[int | None]) -> str:
    """Return the size of transfers to stand behind their name; empty if one is unknown."""
    known = [size for size in sizes if size is not None]
    return f", {format_bytes(sum(known))}" if len(known) == len(sizes) else ""


def _joined(names: Sequence[str]) -> str:
    """Return the first and the last name as a range."""
    return " to ".join(dict.fromkeys((names[0], names[-1])))


def _short(op: Interval) -> str:
    """Return an op's label: the number of its batch, or its name."""
    return printable(op.label) if op.batch < 0 else numbered(op.batch, op.batch)


def _of_block(block: Sequence[Interval]) -> tuple[str, ...]:
    """Return labels for a block of narrow ops, the longest first."""
    first, last = block[0], block[-1]
    if first.batch < 0:
        return (first.kind,)
    return f"batches {numbered(first.batch, last.batch)}", _joined([_short(first), _short(last)])
