"""Charts of numbers: bars by row and maps of cells, as text and as figures.

A picture is rows of panels, which stand side by side. What each family shows in its panels is in
`planner.view.panels`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from planner.model.units import printable
from planner.view.chart import logarithmic_ticks, shortened
from planner.view.figure import note
from planner.view.style import BOUND, COLOURS, GREY, OUTLINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CUT = "»"
"""Marks a bar that is drawn shorter than its value."""


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
    """A bar, stretch by stretch, and the text at its end."""

    name: str
    lengths: tuple[float, ...]  # of each part of the panel, in its unit
    text: str


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar per row, with an optional limit or proven bound on all values."""

    title: str
    unit: str  # the axis's label
    rows: tuple[BarRow, ...]
    parts: tuple[Part, ...] = USUAL
    bound: float | None = None
    bound_text: str = ""
    limit: float | None = None  # longer bars are cut

    @property
    def values(self) -> tuple[float, ...]:
        """The value of each row."""
        return tuple(sum(row.lengths) for row in self.rows)

    @property
    def longest(self) -> float:
        """The length of the axis: the longest drawn bar or the bound; 1 if all are 0."""
        longest = max(self.values)
        if self.limit is not None:
            longest = min(longest, self.limit)
        return max(longest, self.bound or 0) or 1

    @property
    def axis(self) -> str:
        """The axis's label, with a note if bars are cut."""
        return f"{self.unit}; {CUT} cut" if max(self.values) > self.longest else self.unit

    @property
    def texts(self) -> tuple[str, ...]:
        """The text at the end of each bar."""
        pairs = zip(self.rows, self.values, strict=True)
        return tuple(f"{CUT} {row.text}" if it > self.longest else row.text for row, it in pairs)


@dataclass(frozen=True, slots=True)
class Cells:
    """A map of numbers; cells of 0 are empty."""

    title: str
    across: str
    down: str
    unit: str  # what the colours mean
    values: tuple[tuple[float, ...], ...]
    ends: tuple[float, float]  # of the colours
    whole: int  # rows and columns that there are; the first are shown


Panel: TypeAlias = Bars | Cells | str
"""A panel; a text stands in texts only."""

Panels: TypeAlias = Sequence[Sequence[Panel]]


def row_of(name: str, value: float, text: str, part: int, parts: int = 2) -> BarRow:
    """Return a row whose bar has one stretch."""
    return BarRow(name, tuple(value if place == part else 0.0 for place in range(parts)), text)


# ---
# As text.

_MAX_NAME = 48
_MIN_COLUMNS = 10
_MAX_TEXT_CELLS = 16


def text_panels(title: str, panels: Panels, width: int) -> str:
    """Return the panels below each other, `width` characters wide."""
    parts = [title]
    for panel in (panel for row in panels for panel in row):
        match panel:
            case Bars():
                parts.append(_text_bars(panel, width))
            case Cells():
                parts.append(_text_cells(panel))
            case _:
                parts.append(panel)
    return "\n\n".join(parts)


def _text_bars(panel: Bars, width: int) -> str:
    rows = [
        (row.name, list(zip(panel.parts, row.lengths, strict=True)), text)
        for row, text in zip(panel.rows, panel.texts, strict=True)
    ]
    if panel.bound is not None:
        rows.append((panel.bound_text, [(Part("", BOUND, "░"), panel.bound)], ""))
    names = [shortened(printable(name), _MAX_NAME) for name, _, _ in rows]
    margin = max(map(len, names)) + 2
    texts = max(len(text) for _, _, text in rows)
    columns = max(_MIN_COLUMNS, width - margin - texts - 1)
    lines = [f"{panel.title}: {panel.axis}"]
    for name, (_, stretches, text) in zip(names, rows, strict=True):
        bar, end = "", 0.0
        for part, length in stretches:
            end = min(end + length, panel.longest)
            bar += part.character * (round(end / panel.longest * columns) - len(bar))
        lines.append(f"{name:<{margin}}{bar:<{columns}} {text:>{texts}}".rstrip())
    legend = [f"{part.character} {part.name}" for part in panel.parts if part.name]
    if len({part.character for part in panel.parts}) > 1 and legend:
        lines.append(" · ".join(legend))
    return "\n".join(lines)


def _text_cells(panel: Cells) -> str:
    """Return the first rows and columns."""
    shown = [row[:_MAX_TEXT_CELLS] for row in panel.values[:_MAX_TEXT_CELLS]]
    cells = [[f"{value:.3g}" if value else "·" for value in row] for row in shown]
    numbers = [str(place) for place in range(max(map(len, cells)))]
    each = max(len(text) for row in [numbers, *cells] for text in row)
    lines = [
        f"{panel.title}: {panel.across} →, {panel.down} ↓{_left_out(len(shown), panel.whole)}",
        "      " + " ".join(number.rjust(each) for number in numbers),
    ]
    for place, row in enumerate(cells):
        lines.append(f"{place:>4}  {' '.join(text.rjust(each) for text in row)}")
    return "\n".join(lines)


def _left_out(count: int, whole: int) -> str:
    return f" (the first {count} of {whole})" if count < whole else ""


# ---
# As a figure.

_WIDTH_INCHES = 11.0
_ROW_INCHES = 0.27
_MAP_INCHES = 4.4
_CHARACTER_INCHES = 0.07
_AXES_SHARE = 0.7
"""Least share of a panel's width that the axes take without their labels."""
_THICKNESS = 0.76
_MAX_TICKS = 6
_MAX_DRAWN_NAME = 40
_MAX_NUMBERED = 16
"""Up to this number of rows each cell shows its number."""
_NOBODY = "#F2F2F2"


def draw_panels(figure: "Figure", panels: Panels) -> None:
    """Draw the rows of panels below each other."""
    rows = [
        row
        for all_of in panels
        if (row := [panel for panel in all_of if not isinstance(panel, str)])
    ]
    heights = [max(map(_height, row)) for row in rows]
    figure.set_size_inches(_WIDTH_INCHES, 0.4 + sum(heights))
    grid = figure.add_gridspec(len(rows), 1, height_ratios=heights)
    for place, row in enumerate(rows):
        part = grid[place].subgridspec(1, len(row))
        most = max(len(panel.rows) if isinstance(panel, Bars) else 0 for panel in row)
        before: tuple[str, ...] = ()
        for column, panel in enumerate(row):
            axes = figure.add_subplot(part[column])
            if isinstance(panel, Cells):
                _draw_cells(axes, panel)
                continue
            names = tuple(shortened(printable(row.name), _MAX_DRAWN_NAME) for row in panel.rows)
            _draw_bars(axes, panel, _WIDTH_INCHES / len(row))
            axes.set_ylim(most - 0.4, -0.6)
            axes.set_yticks(
                range(len(names)), [""] * len(names) if names == before else names, parse_math=False
            )
            before = names


def _height(panel: Bars | Cells) -> float:
    return _MAP_INCHES if isinstance(panel, Cells) else 1.2 + _ROW_INCHES * len(panel.rows)


def _draw_bars(axes: "Axes", panel: Bars, inches: float) -> None:
    """Draw the bars part by part, with their texts, and the bound."""
    from matplotlib.ticker import MaxNLocator

    ends = [0.0] * len(panel.rows)
    named = 0
    for number, part in enumerate(panel.parts):
        places = [place for place, row in enumerate(panel.rows) if row.lengths[number]]
        if not places:
            continue
        starts = [ends[place] for place in places]
        for place in places:
            ends[place] = min(ends[place] + panel.rows[place].lengths[number], panel.longest)
        lengths = [ends[place] - start for place, start in zip(places, starts, strict=True)]
        look: dict[str, Any] = {"color": part.colour, "edgecolor": OUTLINE, "linewidth": 0.5}
        named += bool(part.name)
        axes.barh(places, lengths, _THICKNESS, left=starts, label=part.name or None, **look)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    for place, text in enumerate(panel.texts):
        note(axes, text, (ends[place], place), (4, 0), va="center", fontsize=8.5, bbox=box)
    whole = all(float(value).is_integer() for value in panel.values)
    ticks = MaxNLocator(_MAX_TICKS, steps=[1, 2, 5, 10], integer=whole, min_n_ticks=1)
    axes.xaxis.set_major_locator(ticks)
    axes.xaxis.set_major_formatter("{x:,g}")
    room = min(_CHARACTER_INCHES * max(map(len, panel.texts)) / (_AXES_SHARE * inches), 0.8)
    axes.set(xlim=(0, panel.longest / (1 - room)), xlabel=panel.axis)
    if panel.bound is not None:  # named in the legend, for a text at the line would cover bars
        line = axes.axvline(panel.bound, label=panel.bound_text, color=BOUND, linewidth=1.4)
        line.set_linestyle((0, (4, 2)))
    legend = named or panel.bound is not None
    pad = 24 if legend else 6
    axes.set_title(panel.title, fontsize=10, loc="left", pad=pad, parse_math=False)
    axes.tick_params(axis="y", length=0, labelsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        _write_legend(axes, named + 1)


def _write_legend(axes: "Axes", columns: int) -> None:
    """Write the legend above the axes; names are no formulas."""
    legend = axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        frameon=False,
        fontsize=8.5,
        borderaxespad=0.2,
        borderpad=0,
        handlelength=1.2,
        columnspacing=1.2,
    )
    for written in legend.get_texts():
        written.set_parse_math(False)


def _draw_cells(axes: "Axes", panel: Cells) -> None:
    """Draw one cell per number, the largest numbers darkest."""
    import numpy as np
    from matplotlib.colors import LogNorm

    low, high = panel.ends
    height, width = len(panel.values), len(panel.values[0])
    image = axes.pcolormesh(
        np.arange(width + 1) - 0.5,
        np.arange(height + 1) - 0.5,
        np.ma.masked_equal(panel.values, 0),
        cmap="viridis_r",
        norm=LogNorm(low, max(high, 1.1 * low)),
        rasterized=True,
    )
    axes.invert_yaxis()
    axes.set_facecolor(_NOBODY)
    if height <= _MAX_NUMBERED:
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5}
        for place, row in enumerate(panel.values):
            for column, value in enumerate(row):
                colour = "white" if value * value > low * high else "black"
                text = f"{value:.3g}" if value else ""
                axes.annotate(text, (column, place), color=colour, **style)
    left_out = _left_out(height, panel.whole)
    axes.set(xlabel=f"{panel.across}{left_out}", ylabel=f"{panel.down}{left_out}")
    axes.locator_params(integer=True)
    axes.tick_params(labelsize=8, length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(panel.title, fontsize=10, loc="left", parse_math=False)
    ticks = logarithmic_ticks(low, high, _MAX_TICKS)
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02, ticks=ticks, format="{x:,g}")
    bar.ax.minorticks_off()
    bar.set_label(panel.unit)
