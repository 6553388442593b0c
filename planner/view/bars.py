"""Charts of numbers: bars by row, as text and as SVG.

A picture is rows of panels, which stand side by side. What each family shows in its panels is in
`planner.view.panels`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from planner.model.units import printable
from planner.view.chart import shortened
from planner.view.html import Html, element
from planner.view.style import COLOURS, GREY
from planner.view.svg import SMALL, WIDTH, Entry, axis, legend, stroke, write


@dataclass(frozen=True, slots=True)
class Part:
    """Stretches of bars that mean the same: named in the legend, if they have a name."""

    name: str
    colour: str
    character: str = "█"


USUAL = (Part("", COLOURS[0]), Part("", GREY, "▒"))
"""The parts of a panel in which one row, or some rows, stand out."""


@dataclass(frozen=True, slots=True)
class BarRow:
    """A bar, segment by segment, and the text at its end."""

    name: str
    lengths: tuple[float, ...]  # of each part of the panel, in its unit
    text: str


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar per row, with an optional bound, proven or wanted, on all values."""

    title: str
    unit: str  # the axis's label
    rows: tuple[BarRow, ...]
    parts: tuple[Part, ...] = USUAL
    bound: float | None = None
    bound_text: str = ""

    @property
    def values(self) -> tuple[float, ...]:
        """The value of each row."""
        return tuple(sum(row.lengths) for row in self.rows)

    @property
    def longest(self) -> float:
        """The length of the axis: the longest bar or the bound; 1 if all are 0."""
        return max(*self.values, self.bound or 0) or 1


Panels: TypeAlias = Sequence[Sequence[Bars]]


def row_of(name: str, value: float, text: str, part: int) -> BarRow:
    """Return a row of a panel of two parts, whose bar has one segment."""
    return BarRow(name, (0.0, value) if part else (value, 0.0), text)


# ---
# As text.

_MAX_NAME = 48
_MIN_COLUMNS = 10


def text_panels(title: str, panels: Panels, width: int) -> str:
    """Return the panels below each other, `width` characters wide."""
    return "\n\n".join([title, *(_text_bars(panel, width) for row in panels for panel in row)])


def _text_bars(panel: Bars, width: int) -> str:
    rows = [
        (row.name, list(zip(panel.parts, row.lengths, strict=True)), row.text) for row in panel.rows
    ]
    if panel.bound is not None:
        rows.append((panel.bound_text, [(Part("", "", "░"), panel.bound)], ""))
    names = [shortened(printable(name), _MAX_NAME) for name, _, _ in rows]
    margin = max(map(len, names)) + 2
    texts = max(len(text) for _, _, text in rows)
    columns = max(_MIN_COLUMNS, width - margin - texts - 1)
    lines = [f"{panel.title}: {panel.unit}"]
    for name, (_, stretches, text) in zip(names, rows, strict=True):
        bar, end = "", 0.0
        for part, length in stretches:
            end += length
            bar += part.character * (round(end / panel.longest * columns) - len(bar))
        lines.append(f"{name:<{margin}}{bar:<{columns}} {text:>{texts}}".rstrip())
    legend = [f"{part.character} {part.name}" for part in panel.parts if part.name]
    if len({part.character for part in panel.parts}) > 1 and legend:
        lines.append(" · ".join(legend))
    return "\n".join(lines)


# ---
# As SVG.

_ROW, _THICKNESS = 20, 15
_GAP = 24
_MAX_DRAWN_NAME = 40


def draw_panels(panels: Panels, top: float = 8) -> tuple[list[Html], float]:
    """Return the parts of a picture from a height on, row of panels by row, and its end."""
    parts: list[Html] = []
    for row in panels:
        width = (WIDTH - 16 - _GAP * (len(row) - 1)) / max(len(row), 1)
        before, bottoms = list[str](), [top]
        for column, panel in enumerate(row):
            left = 8 + (width + _GAP) * column
            parts.append(write(panel.title, left, top + 10, "strong"))
            names = [shortened(printable(row.name), _MAX_DRAWN_NAME) for row in panel.rows]
            shown = [""] * len(names) if names == before else names
            drawn, bottom = _draw_bars(panel, shown, left, width, top + 20)
            before = names
            parts += drawn
            bottoms.append(bottom)
        top = max(bottoms) + 14
    return parts, top


def _draw_bars(
    panel: Bars, names: Sequence[str], left: float, width: float, top: float
) -> tuple[list[Html], float]:
    """Return the bars part by part, with their texts, the axis, and the bound."""
    entries: list[Entry] = [
        (partial(_swatch, part.colour), part.name)
        for number, part in enumerate(panel.parts)
        if part.name and any(row.lengths[number] for row in panel.rows)
    ]
    if panel.bound is not None:
        entries.append((lambda x, y: stroke("bound", f"M{x} {y}h20"), panel.bound_text))
    drawn, top = legend(entries, left, top)
    begin = left + SMALL * max(map(len, names)) + 8
    end = left + width - SMALL * max(len(row.text) for row in panel.rows) - 10
    bottom = top + 6 + _ROW * len(names)

    def x(value: float) -> float:
        return begin + (end - begin) * value / panel.longest

    texts: list[Html] = []  # above the bound
    drawn += axis(x, (begin, end), panel.longest, (top, bottom), panel.unit)
    for place, (name, row) in enumerate(zip(names, panel.rows, strict=True)):
        middle, reached = top + 3 + _ROW * (place + 0.5), 0.0
        drawn.append(write(name, begin - 6, middle, "end small"))
        for part, length in zip(panel.parts, row.lengths, strict=True):
            start, reached = reached, reached + length
            if length:
                size = {"width": x(reached) - x(start), "height": _THICKNESS}
                place_of = {"x": x(start), "y": middle - _THICKNESS / 2}
                drawn.append(element("rect", class_="apart", fill=part.colour, **place_of, **size))
        texts.append(write(row.text, x(reached) + 5, middle, "small over ground"))
    if panel.bound is not None:
        drawn.append(stroke("bound", f"M{x(panel.bound):.2f} {top:.2f}V{bottom:.2f}"))
    return drawn + texts, bottom + 44


def _swatch(colour: str, left: float, middle: float) -> Html:
    return element("rect", fill=colour, x=left, y=middle - 6, width=20, height=12)
