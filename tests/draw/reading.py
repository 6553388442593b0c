"""Pictures read again: their texts, where these stand, and their bars."""

from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from planner.view.chart import Chart
from planner.view.drawing import DRAWINGS

SVG = "{http://www.w3.org/2000/svg}"
_SIZES = {"title": 7.2, "small": 5.8}
"""Estimated widths of a character by class (pixels); of others `_USUAL`."""
_USUAL = 6.4


class Text(NamedTuple):
    """A text, its ends, and its middle."""

    text: str
    left: float
    right: float
    y: float

    def covers(self, other: "Text") -> bool:
        """Return whether one lies on another."""
        apart = self.right <= other.left or other.right <= self.left
        return not apart and abs(self.y - other.y) < 10


class Rect(NamedTuple):
    """A bar: its look, its place, and what it says when pointed at."""

    look: str
    x: float
    y: float
    width: float
    height: float
    tooltip: str


class Picture:
    """What is drawn in a file."""

    def __init__(self, path: Path) -> None:
        self.source = path.read_text(encoding="utf-8")
        root = ElementTree.fromstring(self.source)
        self.width, self.height = (float(root.attrib[side]) for side in ("width", "height"))
        self.texts = [_text(one) for one in root.iter(f"{SVG}text") if one.text]
        self.titles = [one.text or "" for one in root.iter(f"{SVG}title")]
        self.rects = [_rect(one) for one in root.iter(f"{SVG}rect")]
        self.paths = [(one.get("class"), one.get("d", "")) for one in root.iter(f"{SVG}path")]

    @property
    def words(self) -> list[str]:
        """All texts."""
        return [one.text for one in self.texts]


def _text(one: ElementTree.Element) -> Text:
    kinds, text = (one.get("class") or "").split(), one.text or ""
    each = next((size for kind, size in _SIZES.items() if kind in kinds), _USUAL)
    x, width = float(one.attrib["x"]), each * len(text)
    left = x - width if "end" in kinds else x - width / 2 if "middle" in kinds else x
    return Text(text, left, left + width, float(one.attrib["y"]) - 4)


def _rect(one: ElementTree.Element) -> Rect:
    x, y, width, height = (float(one.get(side, 0)) for side in ("x", "y", "width", "height"))
    look = one.get("class") or one.get("fill") or ""
    return Rect(look, x, y, width, height, one.findtext(f"{SVG}title") or "")


def saved(problem: str, chart: Chart[Any], folder: Path) -> Picture:
    """Return a problem's picture, which is the same each time."""
    pictures = []
    for name in ("p.svg", "again.svg"):
        DRAWINGS[problem].save(chart, folder / name)
        pictures.append(Picture(folder / name))
    first, again = pictures
    assert first.source == again.source
    return first
