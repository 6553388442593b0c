"""HTML elements as values.

Every string that is not `Html` is escaped, so no name in a profile can become markup.
"""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from planner.model.units import printable
from planner.view.style import KINDS, LATE


class Html(str):
    """Markup; all other strings are text."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | float | None) -> Html:
    """Return an element; text content and attribute values are escaped, `Html` content is not.

    An attribute of None is left out. ``class_`` and ``aria_label`` stand for ``class`` and
    ``aria-label``.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_clean(_text(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>{joined(*content)}</{name}>")


def joined(*content: str) -> Html:
    """Return the concatenated pieces."""
    return Html("".join(part if isinstance(part, Html) else _clean(part) for part in content))


def drawing(
    class_: str, size: tuple[float, float], *parts: str, label: str = "", **attributes: str
) -> Html:
    """Return an SVG of a size; screen readers read its label, and skip an SVG without one."""
    spoken = {"role": "img", "aria_label": label} if label else {"aria_hidden": "true"}
    box = f"0 0 {size[0]:g} {size[1]:g}"
    return element("svg", *parts, viewBox=box, class_=class_, **spoken, **attributes)


def paragraph(*content: str, class_: str | None = None) -> Html:
    """Return a paragraph."""
    return element("p", *content, class_=class_)


def listed(*items: str, class_: str | None = None) -> Html:
    """Return an unordered list."""
    return element("ul", *(element("li", item) for item in items), class_=class_)


def table(
    caption: str,
    header: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    words: int = 1,
    marked: int | None = None,
    class_: str | None = None,
) -> Html:
    """Return a table that scrolls horizontally where the page is narrow.

    The first `words` columns hold words, the others right-aligned numbers; `marked` is the row to
    highlight.
    """

    def kind(column: int) -> str | None:
        return None if column < words else "number"

    head = element(
        "tr",
        *(element("th", name, scope="col", class_=kind(i)) for i, name in enumerate(header)),
    )
    body = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", cell, class_=kind(i)) for i, cell in enumerate(row[1:], start=1)),
            class_="marked" if place == marked else None,
        )
        for place, row in enumerate(rows)
    ]
    whole = element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", *body),
        class_=class_,
    )
    return scrolled(whole, caption)


def scrolled(content: str, label: str) -> Html:
    """Return wide content in a box that scrolls horizontally, also by keyboard."""
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def _text(value: str | float) -> str:
    """Return an attribute's value; numbers have two decimals, a hundredth of a pixel."""
    if isinstance(value, str):
        return value
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _clean(text: str, *, quote: bool = False) -> str:
    """Return escaped text, with a mark in place of characters that HTML forbids."""
    return escape(printable(text, keep="\n\t"), quote=quote)


def style() -> str:
    """Return the style sheet of a page."""
    return picture_style() + _rules("page.css")


def picture_style(*, literal: bool = False) -> str:
    """Return the rules of all pictures; `literal` has colours in place of the page's variables.

    Not all programs that show SVG know variables.
    """
    kinds = "".join(
        f".{kind}{{fill:{colour};background:{colour}}}\n.over.{kind}{{stroke:{colour}}}\n"
        for kind, colour in KINDS.items()
    )
    rules = f"{kinds}.late{{fill:{LATE}}}\n{_rules('picture.css')}"
    if not literal:
        return rules
    colours = dict(re.findall(r"--(\w+):(#\w+)", rules))
    return re.sub(r"var\(--(\w+)\)", lambda name: colours[name[1]], rules)


def _rules(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
