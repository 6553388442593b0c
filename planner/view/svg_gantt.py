"""The Gantt chart of a plan, as SVG of few elements.

There are two lanes, computation and transfers, then a row per transfer: a line from ready to due
with the transfer as a bar. Consecutive ops form one block, and narrow transfers one bar. Each bar
has a tooltip.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec import UNSET

from planner.jsonio.iteration_answer import VERBS, IterationAnswer, TransferAnswer, timeline
from planner.model.layers import module_range
from planner.model.units import counted, format_bytes, format_ns, unit_of
from planner.solving.timeline import Interval
from planner.view.html import Html, element, joined, listed, scrolled
from planner.view.lanes import numbered, pass_blocks, runs, span_text
from planner.view.wording import tick_text, ticks

_LEFT, _RIGHT, _WIDTH = 178, 1088, 1100
_TOP, _LANE, _BAR = 30, 46, 32
_ROW, _ROW_BAR = 20, 11
_CHARACTER = 6.6
"""Approximate width of a character."""
_APART = 6
"""Smallest width of an op that is set apart."""
_MAX_ROWS = 60
"""With more transfers the rows are left out."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Maps times to horizontal positions."""

    end_ns: int

    def x(self, time_ns: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * time_ns / max(self.end_ns, 1)

    @property
    def pixel_ns(self) -> float:
        return max(self.end_ns, 1) / (_RIGHT - _LEFT)

    def width(self, start_ns: int, end_ns: int) -> float:
        return self.x(end_ns) - self.x(start_ns)


def gantt(answer: IterationAnswer) -> Html:
    """Return the chart and the legend of an answer with a plan."""
    shown, transfers = timeline(answer), () if answer.transfers is UNSET else answer.transfers
    scale = _Scale(shown.end_ns)
    rows = len(transfers) if len(transfers) <= _MAX_ROWS else 0
    lanes_end = _TOP + 2 * _LANE
    bottom = lanes_end + (8 + _ROW * rows if rows else 0)
    drawn = [
        _hatch(),
        _axis(scale, bottom),
        _name("computation", _TOP + _LANE / 2),
        _name("network", _TOP + 1.5 * _LANE),
        *_ops(shown.on("computation"), scale),
        *_network(transfers, scale),
        *(_moment(scale.x(mark.time_ns), mark.time_ns, mark.label) for mark in shown.marks),
    ]
    for number, transfer in enumerate(transfers[:rows]):
        drawn += _row(number, transfer, scale, lanes_end + 8 + _ROW * number)
    if answer.lower_bound_ns is not None:
        at = scale.x(answer.lower_bound_ns)
        drawn.append(element("path", class_="bound", d=f"M{at:.2f} {_TOP}V{bottom}"))
    label = (
        f"Gantt chart: {counted(len(shown.on('computation')), 'op')} and "
        f"{counted(len(transfers), 'transfer')} in {format_ns(shown.end_ns)}"
    )
    chart = element(
        "svg",
        *drawn,
        viewBox=f"0 0 {_WIDTH} {bottom + 48}",
        class_="wide chart",
        role="img",
        aria_label=label,
    )
    return joined(scrolled(chart, label), _legend(answer, transfers, rows))


def _hatch() -> Html:
    lines = element("path", d="M0 6L6 0", class_="hatch")
    pattern = element(
        "pattern", lines, id="gantt-hatch", width=6, height=6, patternUnits="userSpaceOnUse"
    )
    return element("defs", pattern)


def _axis(scale: _Scale, bottom: float) -> Html:
    unit, length = unit_of(scale.end_ns // 2)
    parts: list[str] = []
    for value in ticks(0, scale.end_ns / length, 8):
        at = _LEFT + (_RIGHT - _LEFT) * value * length / max(scale.end_ns, 1)
        parts += [
            element("path", class_="grid", d=f"M{at:.2f} {_TOP}V{bottom}"),
            element("text", tick_text(value), x=at, y=bottom + 18, class_="middle"),
        ]
    middle = (_LEFT + _RIGHT) / 2
    parts.append(element("text", f"time ({unit})", x=middle, y=bottom + 38, class_="middle"))
    return element("g", *parts, class_="axis")


def _name(text: str, y: float) -> Html:
    return element("text", text, x=_LEFT - 10, y=y + 4, class_="end")


def _bar(
    span: tuple[float, float], y: float, height: float, kind: str, title: str, text: str = ""
) -> list[Html]:
    """Return a bar with a tooltip, and a label if there is room."""
    start, width = span[0], span[1] - span[0]
    rect = element(
        "rect",
        element("title", title),
        x=start,
        y=y,
        width=max(width, 0.75),
        height=height,
        class_=kind,
    )
    faint = "middle faint" if kind == "waiting" else "middle onbar"
    return [rect, *_label(span, y + (height - _BAR) / 2, text, faint)]


def _label(span: tuple[float, float], y: float, text: str, kind: str) -> Iterator[Html]:
    """Yield a label in the middle of a bar, if there is room."""
    width = span[1] - span[0]
    if text and width >= _CHARACTER * (len(text) + 1):
        yield element("text", text, class_=kind, x=span[0] + width / 2, y=y + _BAR / 2 + 4)


def _ops(intervals: list[Interval], scale: _Scale) -> Iterator[Html]:
    y = _TOP + (_LANE - _BAR) / 2
    blocks = pass_blocks(intervals)
    for block in blocks:
        start, end, kind = block[0].start_ns, block[-1].end_ns, block[0].kind
        span = (scale.x(start), scale.x(end))
        title = f"{counted(len(block), kind + ' op')}, {span_text(start, end)}"
        inner = list(_inner(block, scale, y))
        yield from _bar(span, y, _BAR, kind, title)
        yield from inner
        if not any("<text" in drawn for drawn in inner):
            yield from _label(span, y, kind, f"middle onbar over {kind}")
    for block, following in pairwise(blocks):
        start, end = block[-1].end_ns, following[0].start_ns
        if end > start:
            title = f"computation waits, {span_text(start, end)}"
            yield from _bar((scale.x(start), scale.x(end)), y, _BAR, "waiting", title, "waits")


def _inner(block: Sequence[Interval], scale: _Scale, y: float) -> Iterator[Html]:
    """Yield frames for the wide ops of a block."""
    wide = [scale.width(op.start_ns, op.end_ns) >= _APART for op in block]
    for place, op in enumerate(block):
        if not wide[place] or len(block) == 1:
            continue
        span = (scale.x(op.start_ns), scale.x(op.end_ns))
        title = f"{op.label}, {span_text(op.start_ns, op.end_ns)}"
        yield from _bar(span, y, _BAR, f"{op.kind} apart", title, op.label)


def _network(transfers: Sequence[TransferAnswer], scale: _Scale) -> Iterator[Html]:
    y = _TOP + _LANE + (_LANE - _BAR) / 2
    spans = [(sent.kind, sent.start_ns, sent.end_ns) for sent in transfers]
    for first, last in runs(spans, scale.pixel_ns):
        opening, closing = transfers[first], transfers[last]
        if first == last:
            yield from _transfer(first, opening, scale, y)
            continue
        run = transfers[first : last + 1]
        startups = sum(each.startup_end_ns - each.start_ns for each in run)
        title = (
            f"{counted(len(run), 'transfer')}, {VERBS[opening.kind]} {first + 1} to {last + 1}: "
            f"{format_bytes(sum(each.bytes for each in run))}, "
            f"{span_text(opening.start_ns, closing.end_ns)}, {format_ns(startups)} of start-ups"
        )
        span = (scale.x(opening.start_ns), scale.x(closing.end_ns))
        height = _BAR * startups / max(closing.end_ns - opening.start_ns, 1)
        yield from _bar(span, y, _BAR, opening.kind, title)
        yield from _bar(span, y, height, "startup", title)
        label = f"middle onbar over {opening.kind}"
        yield from _label(span, y, numbered(first, last), label)


def _transfer(number: int, transfer: TransferAnswer, scale: _Scale, y: float) -> Iterator[Html]:
    title = _title(number, transfer)
    middle, end = scale.x(transfer.startup_end_ns), scale.x(transfer.end_ns)
    if transfer.startup_end_ns > transfer.start_ns:
        startup = (scale.x(transfer.start_ns), middle)
        yield from _bar(startup, y, _BAR, "startup", f"start-up of {title}")
    yield from _bar((middle, end), y, _BAR, f"{transfer.kind} apart", title, str(number + 1))


def _row(number: int, transfer: TransferAnswer, scale: _Scale, y: float) -> Iterator[Html]:
    middle = y + _ROW / 2
    name = f"{VERBS[transfer.kind]} {number + 1} · {format_bytes(transfer.bytes)}"
    yield element("text", name, x=_LEFT - 10, y=middle + 4, class_="end small")
    ready, due = scale.x(transfer.ready_ns), scale.x(transfer.due_ns)
    line = f"M{ready:.2f} {middle - 5}v10M{due:.2f} {middle - 5}v10"
    if due > ready:
        line += f"M{ready:.2f} {middle}H{due:.2f}"
    window = f"ready {format_ns(transfer.ready_ns)}, due {format_ns(transfer.due_ns)}"
    title = f"{_title(number, transfer)}; {window}"
    yield element("path", element("title", title), class_="window", d=line)
    span = (scale.x(transfer.start_ns), scale.x(transfer.end_ns))
    top = middle - _ROW_BAR / 2
    yield from _bar(span, top, _ROW_BAR, transfer.kind, title)
    if transfer.end_ns > transfer.due_ns:
        late = (scale.x(max(transfer.due_ns, transfer.start_ns)), span[1])
        yield from _bar(late, middle - 1.5, 3, "late", f"past due: {title}")


def _moment(at: float, time_ns: int, label: str) -> Html:
    left = at > (_LEFT + _RIGHT) / 2
    text = element(
        "text",
        f"{label}: {format_ns(time_ns)}",
        x=at + (-6 if left else 6),
        y=_TOP - 12,
        class_="end" if left else "start",
    )
    line = element("path", class_="moment", d=f"M{at:.2f} {_TOP - 22}V{_TOP + 2 * _LANE}")
    return element("g", line, text, class_="mark")


def _title(number: int, transfer: TransferAnswer) -> str:
    return (
        f"{VERBS[transfer.kind]} {number + 1}: {module_range(transfer.parameters, 60)}, "
        f"{format_bytes(transfer.bytes)}, {span_text(transfer.start_ns, transfer.end_ns)}"
    )


def _legend(answer: IterationAnswer, transfers: Sequence[TransferAnswer], rows: int) -> Html:
    kinds = [kind for kind in VERBS if any(transfer.kind == kind for transfer in transfers)]
    entries = [("backward", "backward ops"), ("forward", "forward ops")]
    entries += [(kind, VERBS[kind]) for kind in kinds]
    if any(transfer.startup_end_ns > transfer.start_ns for transfer in transfers):
        many = rows < len(transfers)
        text = "start-ups: of transfers drawn as one, their share of the height"
        entries.append(("startup", text if many else "start-up of a transfer"))
    if rows:
        entries += [("window", "ready to due"), ("late", "past due")]
    if answer.lower_bound_ns is not None:
        entries.append(("bound", f"lower bound, {format_ns(answer.lower_bound_ns)}"))
    return listed(*(joined(_swatch(kind), f" {text}") for kind, text in entries), class_="legend")


def _swatch(kind: str) -> Html:
    if kind in ("window", "bound", "late"):
        mark = element("path", class_=kind if kind != "late" else "late line", d="M0 6H20")
    else:
        mark = element("rect", class_=kind, x=0.5, y=0.5, width=19, height=11)
    return element("svg", mark, viewBox="0 0 20 12", class_="swatch", aria_hidden="true")
