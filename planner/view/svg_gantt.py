"""The Gantt chart of a plan on the page, as SVG of few elements (`planner.view.scene`)."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from planner.jsonio.iteration_answer import IterationAnswer, timeline
from planner.model.units import counted, format_ns, unit_of
from planner.solving.timeline import Mark
from planner.view.chart import tick_text, ticks
from planner.view.html import Html, drawing, element, joined, listed, scrolled
from planner.view.scene import Bar, Pen, Row, scene_of

_LEFT, _RIGHT, _WIDTH = 178, 1088, 1100
_TOP, _LANE, _BAR = 30, 46, 32
_ROW, _ROW_BAR, _LATE_BAR = 20, 11, 3
_MAX_ROWS = 60
"""With more transfers the rows are left out."""
_PEN = Pen(_RIGHT - _LEFT, apart=6, character=6.6, digit=6.6, rows=_MAX_ROWS, label=27)

_Scale: TypeAlias = Callable[[float], float]
"""Maps times to horizontal positions."""


def gantt(answer: IterationAnswer) -> Html:
    """Return the chart and the legend of an answer with a plan."""
    shown = timeline(answer)
    end_ns, bound = max(shown.end_ns, 1), answer.lower_bound_ns
    scene, count = scene_of(shown, _PEN, end_ns), len(shown.windows)
    rows = scene.rows if count <= _MAX_ROWS else ()
    lanes_end = _TOP + _LANE * len(scene.lanes)
    bottom = lanes_end + (8 + _ROW * len(rows) if rows else 0)

    def x(time_ns: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * time_ns / end_ns

    drawn = [_hatch(), _axis(x, end_ns, bottom)]
    for place, (name, bars) in enumerate(zip(shown.resources, scene.lanes, strict=True)):
        middle = _TOP + _LANE * (place + 0.5)
        drawn.append(element("text", name, x=_LEFT - 10, y=middle + 4, class_="end"))
        drawn += [_bar(bar, x, middle, _BAR) for bar in bars]
        drawn += [_text(bar, x, middle) for bar in bars if bar.text]
    drawn += [_moment(mark, x, lanes_end) for mark in shown.marks]
    for place, row in enumerate(rows):
        drawn += _row(row, x, lanes_end + 8 + _ROW * (place + 0.5))
    legend = {look: text for look, text in scene.legend if rows or look not in ("window", "late")}
    if any(bar.share < 1 for bars in scene.lanes for bar in bars):
        legend["startup"] = "start-ups: of transfers drawn as one, their share of the height"
    entries = [joined(_swatch(look), f" {text}") for look, text in legend.items()]
    if bound is not None:
        drawn.append(element("path", class_="bound", d=f"M{x(bound):.2f} {_TOP}V{bottom}"))
        entries.append(joined(_swatch("bound"), f" lower bound, {format_ns(bound)}"))
    ops = sum(interval.batch < 0 for interval in shown.intervals)
    what = f"{counted(ops, 'op')} and {counted(count, 'transfer')}"
    label = f"Gantt chart: {what} in {format_ns(shown.end_ns)}"
    chart = drawing("wide chart", (_WIDTH, bottom + 48), *drawn, label=label)
    return joined(scrolled(chart, label), listed(*entries, class_="legend"))


def _hatch() -> Html:
    lines = element("path", d="M0 6L6 0", class_="hatch")
    pattern = element(
        "pattern", lines, id="gantt-hatch", width=6, height=6, patternUnits="userSpaceOnUse"
    )
    return element("defs", pattern)


def _axis(x: _Scale, end_ns: int, bottom: float) -> Html:
    unit, length = unit_of(end_ns // 2)
    parts: list[str] = []
    for value in ticks(0, end_ns / length, 8):
        at = x(value * length)
        parts += [
            element("path", class_="grid", d=f"M{at:.2f} {_TOP}V{bottom}"),
            element("text", tick_text(value), x=at, y=bottom + 18, class_="middle"),
        ]
    middle = (_LEFT + _RIGHT) / 2
    parts.append(element("text", f"time ({unit})", x=middle, y=bottom + 38, class_="middle"))
    return element("g", *parts, class_="axis")


def _bar(bar: Bar, x: _Scale, middle: float, height: float) -> Html:
    """Return a bar with its tooltip, wide enough to be seen."""
    start, end = x(bar.start_ns), x(bar.end_ns)
    return element(
        "rect",
        element("title", bar.told),
        x=start,
        y=middle - height / 2,
        width=max(end - start, 0.75),
        height=height * bar.share,
        class_=f"{bar.look} apart" if bar.apart else bar.look,
    )


def _text(bar: Bar, x: _Scale, middle: float) -> Html:
    """Return the text in the middle of a bar, with room around it where it covers lines."""
    over = "" if bar.apart else f" over {bar.look}"
    kind = "middle faint" if bar.look == "idle" else f"middle onbar{over}"
    at = (x(bar.start_ns) + x(bar.end_ns)) / 2
    return element("text", bar.text, class_=kind, x=at, y=middle + 4)


def _row(row: Row, x: _Scale, middle: float) -> Iterator[Html]:
    yield element("text", row.name, x=_LEFT - 10, y=middle + 4, class_="end small")
    ready, due = x(row.ready_ns), x(row.due_ns)
    line = f"M{ready:.2f} {middle - 5}v10M{due:.2f} {middle - 5}v10"
    if due > ready:
        line += f"M{ready:.2f} {middle}H{due:.2f}"
    yield element("path", element("title", row.told), class_="window", d=line)
    for bar in row.bars:
        yield _bar(bar, x, middle, _LATE_BAR if bar.look == "late" else _ROW_BAR)


def _moment(mark: Mark, x: _Scale, bottom: float) -> Html:
    at = x(mark.time_ns)
    left = at > (_LEFT + _RIGHT) / 2
    text = element(
        "text",
        f"{mark.label}: {format_ns(mark.time_ns)}",
        x=at + (-6 if left else 6),
        y=_TOP - 12,
        class_="end" if left else "start",
    )
    line = element("path", class_="moment", d=f"M{at:.2f} {_TOP - 22}V{bottom}")
    return element("g", line, text, class_="mark")


def _swatch(look: str) -> Html:
    if look in ("window", "bound"):
        mark = element("path", class_=look, d="M0 6H20")
    else:
        mark = element("rect", class_=look, x=0.5, y=0.5, width=19, height=11)
    return drawing("swatch", (20, 12), mark)
