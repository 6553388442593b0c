"""HTML elements as values.

Every string that is not `Html` is escaped, so no name in a profile can become markup.
"""

from html import escape

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


def paragraph(*content: str, class_: str | None = None) -> Html:
    """Return a paragraph."""
    return element("p", *content, class_=class_)


def listed(*items: str, class_: str | None = None) -> Html:
    """Return an unordered list."""
    return element("ul", *(element("li", item) for item in items), class_=class_)


def table(
    caption: str,
    header: tuple[str, ...],
    rows: list[tuple[str, ...]],
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


# ---
# The style sheet: light and dark, narrow and wide, screen and paper.
#
# Pictures use the same colour variables as the text, so one picture serves both schemes. Bars use
# Okabe and Ito's colours, which colour-blind readers can distinguish, with dark text in both
# schemes.

_DARK = """--paper:#16181c;--ink:#e6e6e6;--soft:#a8adb5;--rule:#3a3f47;--tint:#20242a;
--mark:#ff8a80;--blue:#6cc0f5;--orange:#f0b13c;--purple:#d992b8"""

_LIGHT = """--paper:#ffffff;--ink:#1b1d21;--soft:#565c66;--rule:#d5d9df;--tint:#f3f5f8;
--mark:#b00020;--blue:#0072b2;--orange:#b86e00;--purple:#a34b7f"""

_RULES = """
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2rem clamp(.8rem,3vw,2rem) 3rem;max-width:1180px;
background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",
Roboto,"DejaVu Sans",sans-serif;overflow-wrap:anywhere;-webkit-print-color-adjust:exact;
print-color-adjust:exact}
h1{font-size:1.8rem;line-height:1.2;margin:0 0 .3rem}
h2{font-size:1.25rem;margin:2.2rem 0 .6rem;padding-top:.7rem;border-top:1px solid var(--rule)}
h3{font-size:1.02rem;margin:1.4rem 0 .4rem}
p{margin:.5rem 0;max-width:82ch}
.about,.note,figcaption{color:var(--soft);font-size:.9rem}
.verdict{font-size:1.12rem}
ul{margin:.4rem 0;padding-left:1.3rem}
ul.notes{font-size:.9rem;max-width:96ch}
.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.25rem 1.3rem;font-size:.9rem}
.legend li{display:flex;align-items:center;gap:.4rem}
.key{display:inline-block;width:20px;height:12px;border:1px solid var(--soft)}
.letter{display:inline-block;min-width:1.5em;text-align:center;border:1.5px solid var(--blue);
border-radius:1em;font-size:.8rem;line-height:1.35}
.swatch{width:20px;height:12px;flex:none}
.swatch.long{width:30px}
.scroll{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;min-width:100%}
caption{text-align:left;color:var(--soft);padding-bottom:.2rem}
th,td{padding:.28rem .7rem .28rem 0;text-align:left;vertical-align:top;overflow-wrap:normal;
border-bottom:1px solid var(--rule)}
thead th{color:var(--soft);font-weight:600;vertical-align:bottom}
tbody th{font-weight:400}
.number{text-align:right;white-space:nowrap}
.marked th,.marked td{background:var(--tint)}
.marked th{font-weight:700}
.value{display:inline-block;min-width:4.2em}
td:has(svg.bar){min-width:170px}
td:nth-child(3){white-space:nowrap}
.peers thead th{white-space:nowrap}
.peers td:nth-child(2){min-width:13em}
.transfers td:nth-child(2){white-space:nowrap}
.transfers td:nth-child(3){white-space:normal;min-width:16em}
details{margin:.8rem 0}
summary{cursor:pointer;color:var(--blue)}
:focus-visible{outline:2px solid var(--blue);outline-offset:2px}
pre{background:var(--tint);padding:.7rem .9rem;white-space:pre-wrap;border-radius:4px;
font-size:.86rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:.4rem 0;
font-size:.92rem}
dt{color:var(--soft)}
dd{margin:0}
figure{margin:0}
figcaption{text-align:center;margin-bottom:.3rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));
gap:1rem 1.5rem}
svg.chart{display:block;width:100%;height:auto;font-size:13px}
svg.wide{min-width:880px;font-size:12px}
svg.stacked{display:block;width:100%;height:30px}
svg.bar{width:84px;height:10px;margin-right:.6rem;vertical-align:baseline}
svg text{fill:var(--ink)}
svg .small{font-size:11px}
svg .middle{text-anchor:middle}
svg .end{text-anchor:end}
svg .strong{font-weight:700}
svg .axis text,svg .faint{fill:var(--soft)}
svg text.onbar{fill:#111}
.over{stroke-width:5;stroke-linejoin:round;paint-order:stroke}
svg .mark text{fill:var(--mark)}
.grid{stroke:var(--rule);fill:none}
.moment{stroke:var(--mark);stroke-dasharray:2 3;fill:none}
.bound{stroke:var(--ink);stroke-width:1.4;stroke-dasharray:6 4;fill:none}
.window{stroke:var(--soft);stroke-width:1.4;fill:none}
.hatch{stroke:var(--ink);stroke-width:1;fill:none}
rect.apart{stroke:var(--paper);stroke-width:.6}
.waiting{fill:none;stroke:var(--rule);stroke-dasharray:3 3}
.bytes{fill:#e69f00;background:#e69f00}
.startups{fill:#cc79a7;background:#cc79a7}
.startup{fill:url(#gantt-hatch);stroke:var(--soft);stroke-width:.5}
.gain{fill:#56b4e9}
.far{fill:#e69f00}
.one{stroke:var(--ink);fill:none;vector-effect:non-scaling-stroke;stroke-width:1.2}
.line{fill:none;stroke-width:2.2;stroke-linejoin:round}
.line.best{stroke:var(--blue)}
.line.kept{stroke:var(--orange);stroke-dasharray:8 4}
.line.ddp{stroke:var(--purple);stroke-dasharray:8 3 2 3}
.line.least{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:2 3}
.winner{fill:var(--paper);stroke:var(--blue);stroke-width:2}
svg .onwinner{font-size:11px;font-weight:700}
@media print{
body{max-width:none;padding:0;font-size:10.5pt}
h2{break-after:avoid}
h3,caption{break-after:avoid}
figure,svg,tr,.legend{break-inside:avoid}
.scroll{overflow:visible}
svg.wide{min-width:0}
.charts{grid-template-columns:1fr 1fr}
table{font-size:8.5pt}
summary{color:var(--ink)}
details:not([open]){display:none}
@page{margin:14mm}
}
"""

_KINDS = "".join(
    f".{kind}{{fill:{colour};background:{colour}}}\n.over.{kind}{{stroke:{colour}}}\n"
    for kind, colour in KINDS.items()
)
_LATE = f"path.late{{stroke:{LATE};stroke-width:3}}\nrect.late{{fill:{LATE}}}\n"

STYLE = (
    f":root{{{_LIGHT}}}\n"
    f"@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}\n"
    f"@media print{{:root{{{_LIGHT}}}}}\n"
    f"{_KINDS}{_LATE}{_RULES}"
)
"""The whole style sheet, without external resources."""
