"""Gantt charts as SVG, in files and on pages: lanes, rows of transfers, and the memory in use.

The lanes follow iBatch's Fig. 4; colours mean the same in all charts. Marked moments, such as the
lower bound, have a labelled line above the lanes. Below the lanes are the windows of the transfers
and the memory in use, if the timeline has them.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from planner.model.units import byte_unit, format_bytes, format_ns, unit_of
from planner.solving.timeline import Memory, Timeline
from planner.view.chart import Chart, tick_text, ticks
from planner.view.html import Html, element
from planner.view.scene import Bar, Row, scene_of
from planner.view.svg import Scale, axis, block, legend, save_svg, stroke, write

_LEFT, _RIGHT = 250, 1088
_LANE, _BAR = 46, 32
_ROW, _ROW_BAR, _LATE_BAR = 20, 11, 3
_MARK, _MEMORY = 18, 110
_DRAWN_AS_ONE = "start-ups: of transfers drawn as one, their share of the height"


def save_gantt(chart: Chart[Timeline], path: Path) -> None:
    """Draw `chart` into `path` as SVG."""
    save_svg(path, chart.title, partial(draw_gantt, chart))


def draw_gantt(chart: Chart[Timeline], top: float = 8) -> tuple[list[Html], float]:
    """Return the parts of a picture from a height on, and its end."""
    timeline, moments = chart.view, _moments(chart)
    end_ns = max([timeline.end_ns, *(time for time, *_ in moments), 1])
    moments.sort(key=partial(_row_order, end_ns))
    scene = scene_of(timeline, _RIGHT - _LEFT, end_ns)
    lanes = top + _MARK * len(moments) + 4
    rows = lanes + _LANE * len(scene.lanes)
    memory = rows + (8 + _ROW * len(scene.rows) if scene.rows else 0)
    bottom = memory + (0 if timeline.memory is None else 16 + _MEMORY)

    def x(time_ns: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * time_ns / end_ns

    unit, length = unit_of(end_ns // 2)  # the axis spans at least two units
    drawn = [_hatch()]
    ends, heights = (_LEFT, _RIGHT), (lanes, bottom)
    drawn += axis(lambda time: x(time * length), ends, end_ns / length, heights, f"time ({unit})")
    for place, (name, bars) in enumerate(zip(timeline.resources, scene.lanes, strict=True)):
        middle = lanes + _LANE * (place + 0.5)
        drawn.append(write(name, _LEFT - 10, middle, "end"))
        drawn += [_bar(bar, x, middle, _BAR) for bar in bars]
        drawn += [_text(bar, x, middle) for bar in bars if bar.text]
    for place, row in enumerate(scene.rows):
        drawn += _row(row, x, rows + 8 + _ROW * (place + 0.5))
    if timeline.memory is not None:
        drawn += _memory(timeline.memory, x, timeline.end_ns, memory + 16)
    for place, (time, label, class_) in enumerate(moments):
        at, height = x(time), top + _MARK * place
        drawn.append(stroke(class_, f"M{at:.2f} {height:.2f}V{bottom:.2f}"))
        drawn.append(_beside(f"{label}: {format_ns(time)}", at, height + 8, f"of{class_}"))
    names = dict(scene.legend)
    if any(bar.share < 1 for bars in scene.lanes for bar in bars):
        names["startup"] = _DRAWN_AS_ONE
    entries, end = legend(
        [(partial(_swatch, look), name) for look, name in names.items()], 8, bottom + 48
    )
    return drawn + entries, end


def _moments(chart: Chart[Timeline]) -> list[tuple[int, str, str]]:
    """Return the time, the label and the look of the marked moments by time."""
    moments = [(mark.time_ns, mark.label, "moment") for mark in chart.view.marks]
    if chart.lower_bound_ns is not None:
        reached = ", reached" if chart.lower_bound_ns >= chart.view.end_ns else ""
        moments.append((chart.lower_bound_ns, f"lower bound of every plan{reached}", "bound"))
    return sorted(moments)


def _row_order(end_ns: int, moment: tuple[int, str, str]) -> tuple[bool, int]:
    """Return a sort key of moments: in this order, no moment's line crosses the text of another."""
    time_ns = moment[0]
    late = 2 * time_ns > end_ns
    return late, -time_ns if late else time_ns


def _beside(text: str, at: float, middle: float, class_: str) -> Html:
    """Return a text on the side of a position where there is more room."""
    left = at > (_LEFT + _RIGHT) / 2
    return write(text, at + (-6 if left else 6), middle, f"{'end ' if left else ''}{class_}")


def _hatch() -> Html:
    lines = stroke("hatch", "M0 6L6 0")
    pattern = element(
        "pattern", lines, id="gantt-hatch", width=6, height=6, patternUnits="userSpaceOnUse"
    )
    return element("defs", pattern)


def _bar(bar: Bar, x: Scale, middle: float, height: float) -> Html:
    start, end = x(bar.start_ns), x(bar.end_ns)
    look = f"{bar.look} apart" if bar.apart else bar.look
    return block(look, start, middle - height / 2, end - start, height * bar.share, bar.tooltip)


def _text(bar: Bar, x: Scale, middle: float) -> Html:
    """Return the text in the middle of a bar, with room around it where it covers lines."""
    over = "" if bar.apart else f" over {bar.look}"
    kind = "middle faint" if bar.look == "idle" else f"middle onbar{over}"
    return write(bar.text, (x(bar.start_ns) + x(bar.end_ns)) / 2, middle, kind)


def _row(row: Row, x: Scale, middle: float) -> Iterator[Html]:
    yield write(row.name, _LEFT - 10, middle, "end small")
    ready, due = x(row.ready_ns), x(row.due_ns)
    line = f"M{ready:.2f} {middle - 5}v10M{due:.2f} {middle - 5}v10"
    if due > ready:
        line += f"M{ready:.2f} {middle}H{due:.2f}"
    yield stroke("window", line, row.tooltip)
    for bar in row.bars:
        yield _bar(bar, x, middle, _LATE_BAR if bar.look == "late" else _ROW_BAR)


def _memory(memory: Memory, x: Scale, end_ns: int, top: float) -> Iterator[Html]:
    """Yield the memory in use, its peak, and the limit, unless that is far above."""
    (moment, most), limit, bottom = memory.peak, memory.limit_bytes, top + _MEMORY
    near = limit if limit is not None and limit <= 2 * most else None
    highest = max(most, near or 0, 1)
    unit, length = byte_unit(highest)

    def y(size: float) -> float:
        return bottom - (_MEMORY - 16) * size / highest

    yield write(f"memory ({unit})", _LEFT - 60, top + _MEMORY / 2, "end")
    for value in ticks(0, highest / length, 3):
        yield write(tick_text(value), _LEFT - 10, y(value * length), "end small")
    (first, size), *levels = memory.levels
    steps = "".join(f"H{x(time):.2f}V{y(size):.2f}" for time, size in levels)
    line = f"M{x(first):.2f} {y(size):.2f}{steps}H{x(end_ns):.2f}"
    yield stroke("forward", f"{line}V{bottom:.2f}H{x(first):.2f}Z")
    yield stroke("window", line)
    if near is not None:
        yield stroke("bound", f"M{_LEFT} {y(near):.2f}H{_RIGHT}")
        yield write(f"limit {format_bytes(near, highest)}", _LEFT + 6, y(near) - 8, "small")
    yield element("circle", class_="peak", cx=x(moment), cy=y(most), r=3)
    peak = f"peak {format_bytes(most, highest)}"
    yield _beside(peak, x(moment), y(most) - 8, "small ofmoment")


def _swatch(look: str, left: float, middle: float) -> Html:
    if look == "window":
        return stroke(look, f"M{left} {middle}h20")
    return element("rect", class_=look, x=left + 0.5, y=middle - 5.5, width=19, height=11)
