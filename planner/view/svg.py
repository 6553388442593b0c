"""What all pictures in SVG share: texts, axes, legends, and the file with its style and title.

Widths of texts are estimated, as no font is at hand. The same drawing gives the same file.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TypeAlias

from planner.view.chart import tick_text, ticks
from planner.view.html import Html, drawing, element, picture_style

WIDTH = 1100
CHARACTER, SMALL = 6.9, 6.6
"""Widths of a character of a text, and of a small one (pixels)."""

_TITLE, _LINE = 140, 18
"""Characters of a line of a title, and the height of a line (pixels)."""
_TICK_APART = 90

Scale: TypeAlias = Callable[[float], float]
"""Maps values to horizontal positions."""

Entry: TypeAlias = tuple[Callable[[float, float], Html], str]
"""A function that draws a swatch of a legend from its left and its middle, and its name."""


def write(text: str, x: float, y: float, class_: str | None = None) -> Html:
    """Return a text whose middle is at a height."""
    return element("text", text, x=x, y=y + 4, class_=class_)


def block(class_: str, left: float, top: float, width: float, height: float, tooltip: str) -> Html:
    """Return a bar with a tooltip, wide enough to be seen."""
    place = {"x": left, "y": top, "width": max(width, 0.75), "height": height}
    return element("rect", element("title", tooltip), class_=class_, **place)


def stroke(class_: str, path: str, tooltip: str = "") -> Html:
    """Return a line with a tooltip, if it has one."""
    title = (element("title", tooltip),) if tooltip else ()
    return element("path", *title, class_=class_, d=path)


def axis(
    x: Scale, ends: tuple[float, float], end: float, between: tuple[float, float], label: str
) -> Iterator[Html]:
    """Yield a horizontal axis of values from 0 to `end`, with grid lines.

    `ends` are the positions of its ends, `between` the heights that the lines join.
    """
    (left, right), (top, bottom) = ends, between
    for value in ticks(0, end, int((right - left) / _TICK_APART)):
        yield stroke("grid", f"M{x(value):.2f} {top:.2f}V{bottom:.2f}")
        yield write(tick_text(value), x(value), bottom + 14, "middle faint")
    yield write(label, (left + right) / 2, bottom + 34, "middle faint")


def legend(entries: Sequence[Entry], left: float, top: float) -> tuple[list[Html], float]:
    """Return swatches, 20 wide and 12 high, with their names, line by line, and the bottom."""
    parts, x, y = list[Html](), left, top + _LINE / 2
    for swatch, name in entries:
        width = 26 + CHARACTER * len(name) + 20
        if x > left and x + width > WIDTH:
            x, y = left, y + _LINE
        parts += [swatch(x, y), write(name, x + 26, y)]
        x += width
    return parts, y + _LINE / 2 if entries else top


def save_svg(path: Path, title: str, draw: Callable[[float], tuple[Sequence[Html], float]]) -> None:
    """Write a picture below its title; `draw` returns its parts, from a height on, and its end."""
    lines = wrap(title, _TITLE)
    parts, bottom = draw(8 + _LINE * len(lines) + 6)
    heading = [
        write(line, 8, 8 + _LINE * (place + 0.5), "title") for place, line in enumerate(lines)
    ]
    size = (WIDTH, round(bottom + 8))
    ground = element("rect", class_="paper", width=WIDTH, height=size[1])
    svg = drawing(
        "chart",
        size,
        *(element("style", Html(picture_style(literal=True))), ground, *heading, *parts),
        label=title,
        xmlns="http://www.w3.org/2000/svg",
        width=str(size[0]),
        height=str(size[1]),
    )
    path.write_text(svg + "\n", encoding="utf-8")
