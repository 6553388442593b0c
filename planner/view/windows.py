"""The windows of transfers: a thin line from ready to due, with the transfer as a thick bar.

The part of a transfer after its due time is red. If there are more transfers than rows, a row holds
several consecutive transfers, and its line spans from the first ready to the last due time.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.model.layers import module_range
from planner.model.units import counted, format_bytes, format_ns, printable
from planner.solving.timeline import Window
from planner.view.figure import told
from planner.view.lanes import PIXELS, draw_bar, numbered, runs, span_text
from planner.view.style import KIND_NAMES, KINDS, LATE, OUTLINE, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_ROWS = 40
_LABEL_CHARACTERS = 48
_ROW_INCHES = 0.17
_THICK, _CORE = 0.62, 0.2

Row = Sequence[Window]


def window_rows(windows: Sequence[Window]) -> list[Row]:
    """Return the windows of each row, at most `MAX_ROWS`."""
    each = -(-len(windows) // MAX_ROWS) or 1
    return [windows[start : start + each] for start in range(0, len(windows), each)]


def panel_inches(rows: int) -> float:
    """Return the height of the panel."""
    return _ROW_INCHES * (rows + 1)


def draw_windows(axes: "Axes", rows: Sequence[Row], scale: float, end_ns: int) -> None:
    """Draw the rows from the top."""
    pixel = max(end_ns, 1) / PIXELS
    for place, row in enumerate(rows):
        text = _told(row)
        _draw_line(axes, place, row, scale, text)
        spans = [(transfer.kind, transfer.start_ns, transfer.end_ns) for transfer in row]
        for first, last in runs(spans, pixel):
            span = row[first].start_ns, row[last].end_ns
            bar = text if len(row) == 1 else _told(row[first : last + 1])
            draw_bar(axes, span, place, scale, KINDS[row[first].kind], bar, height=_THICK)
        late = [transfer for transfer in row if transfer.end_ns > transfer.due_ns]
        overruns = [
            ("", max(transfer.due_ns, transfer.start_ns), transfer.end_ns) for transfer in late
        ]
        for first, last in runs(overruns, pixel):
            span = overruns[first][1], overruns[last][2]
            past = f"past due: {_told(late[first : last + 1])}"
            draw_bar(axes, span, place, scale, LATE, past, height=_CORE, edge=LATE)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    names = [_name(row) for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=7, parse_math=False)


def _draw_line(axes: "Axes", place: int, row: Row, scale: float, text: str) -> None:
    ready, due = min(sent.ready_ns for sent in row), max(sent.due_ns for sent in row)
    if due > ready:
        line = axes.plot([ready / scale, due / scale], [place, place], color=SOFT, linewidth=1.1)[0]
        told(line, text)
    for moment in (ready, due):
        axes.plot([moment / scale], [place], linestyle="", marker="|", markersize=6, color=OUTLINE)


def _name(row: Row) -> str:
    """Return a row's label: numbers, parameters, size."""
    number = numbered(row[0].batch, row[-1].batch)
    sizes = [sent.size_bytes for sent in row if sent.size_bytes is not None]
    size = f" · {format_bytes(sum(sizes))}" if sizes else ""
    room = _LABEL_CHARACTERS - len(number) - len(size) - 3
    return f"{number} · {module_range(_carried(row), room)}{size}"


def _carried(row: Row) -> list[str]:
    names = [name for sent in row for name in sent.names or (sent.label.partition(": ")[2],)]
    return [printable(name) for name in dict.fromkeys(names)]


def _told(row: Row) -> str:
    """Return the tooltip of a row or of a part of it."""
    first, last = row[0], row[-1]
    span = span_text(first.start_ns, last.end_ns)
    if len(row) == 1:
        window = f"ready {format_ns(first.ready_ns)}, due {format_ns(first.due_ns)}"
        size = "" if first.size_bytes is None else f", {format_bytes(first.size_bytes)}"
        return f"{first.label}{size}, {span}; {window}"
    what = f"{counted(len(row), 'transfer')}, {KIND_NAMES[first.kind]}"
    return f"{what} {numbered(first.batch, last.batch)}, {span}"
