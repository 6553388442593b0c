"""The time and the switches of each algorithm as bars, the fastest first: as text and as a figure.

A bar of a row has the colour of the row's topology.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.model.units import format_ns, printable, unit_of
from planner.solving.views import Compared
from planner.view.chart import Chart, shortened
from planner.view.figure import legend_above, note, saving
from planner.view.style import COLOURS, OUTLINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CUT = "»"
"""Marks a bar that is drawn shorter than its value."""

_TOPOLOGIES = (("bcube", "BCube", 0), ("fattree", "Fat-Tree", 1))
"""Name in data, name in text, and colour of each topology."""

_MOST_OF_MEDIAN = 3
"""Longer times (multiples of the median) are cut, so that the others stay distinguishable."""


@dataclass(frozen=True, slots=True)
class BarPanel:
    """One bar per algorithm, with an optional proven bound on all values."""

    title: str
    unit: str  # the axis's label with the unit
    values: tuple[float, ...]
    texts: tuple[str, ...]  # at the end of each bar
    bound: float | None = None
    bound_text: str = ""
    limit: float | None = None  # longer bars are cut

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
    def bars(self) -> list[tuple[float, str]]:
        """The drawn length of each bar and the text at its end."""
        return [
            (self.longest, f"{CUT} {text}") if value > self.longest else (value, text)
            for value, text in zip(self.values, self.texts, strict=True)
        ]


def sorted_rows(chart: Chart[tuple[Compared, ...]]) -> list[Compared]:
    """Return the algorithms in the order of their bars."""
    return sorted(chart.view, key=lambda row: (row.time_ns, row.switches, row.name))


def panels_of(chart: Chart[tuple[Compared, ...]]) -> tuple[BarPanel, BarPanel]:
    """Return the bars of the times and of the switches.

    The chart's bound is one on the time of the algorithms on a BCube.
    """
    rows, bound_ns = sorted_rows(chart), chart.lower_bound_ns
    limit = max(_MOST_OF_MEDIAN * rows[len(rows) // 2].time_ns, bound_ns or 0)
    unit, scale = unit_of(min(rows[-1].time_ns, limit))
    times = BarPanel(
        "time of one synchronisation",
        f"time ({unit})",
        tuple(row.time_ns / scale for row in rows),
        tuple(format_ns(row.time_ns) for row in rows),
        None if bound_ns is None else bound_ns / scale,
        "" if bound_ns is None else f"lower bound on BCube {format_ns(bound_ns)}",
        limit / scale,
    )
    switches = BarPanel(
        "cost of the network",
        "switches",
        tuple(float(row.switches) for row in rows),
        tuple(_count(row.switches) for row in rows),
    )
    return times, switches


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**9 else f"{number:.3g}"


# ---
# As text: one row per bar.

_MAX_NAME_AS_TEXT = 48
_MIN_COLUMNS = 10


def text_bars(chart: Chart[tuple[Compared, ...]], width: int = 80) -> str:
    """Return `chart` as text, `width` characters wide."""
    names = [row.name for row in sorted_rows(chart)]
    return "\n\n".join([chart.title, *(_panel(names, panel, width) for panel in panels_of(chart))])


def _panel(names: list[str], panel: BarPanel, width: int) -> str:
    rows = [(name, *bar, "█") for name, bar in zip(names, panel.bars, strict=True)]
    if panel.bound is not None:
        rows.append((panel.bound_text, panel.bound, "", "░"))
    names = [shortened(printable(row[0]), _MAX_NAME_AS_TEXT) for row in rows]
    margin = max(map(len, names)) + 2
    texts = max(len(row[2]) for row in rows)
    columns = max(_MIN_COLUMNS, width - margin - texts - 1)
    lines = [f"{panel.title}: {panel.axis}"]
    for name, (_, value, text, character) in zip(names, rows, strict=True):
        bar = character * round(value / panel.longest * columns)
        lines.append(f"{name:<{margin}}{bar:<{columns}} {text:>{texts}}".rstrip())
    return "\n".join(lines)


# ---
# As a figure: the panels side by side.

_WIDTH_INCHES = 11.0
_ROW_INCHES = 0.27
_THICKNESS = 0.76
_MAX_NAME = 40
_MAX_TICKS = 6
_BOUND = "#B00020"


def _fill(figure: "Figure", chart: Chart[tuple[Compared, ...]]) -> None:
    rows = sorted_rows(chart)
    figure.set_size_inches(_WIDTH_INCHES, 1.6 + _ROW_INCHES * len(rows))
    grid = figure.add_gridspec(1, 2, width_ratios=[3, 2])
    for place, panel in enumerate(panels_of(chart)):
        axes = figure.add_subplot(grid[place])
        _draw(axes, rows, panel)
        axes.set_title(panel.title, fontsize=10, loc="left", pad=24, parse_math=False)
        names = [] if place else [shortened(printable(row.name), _MAX_NAME) for row in rows]
        axes.set_yticks(range(len(rows)), names or [""] * len(rows), parse_math=False)
        axes.tick_params(axis="y", length=0, labelsize=8.5)
        axes.set_ylim(len(rows) - 0.4, -0.6)


save_bars = saving(_fill)


def _draw(axes: "Axes", rows: list[Compared], panel: BarPanel) -> None:
    """Draw the bars of each topology with their texts, and the bound."""
    from matplotlib.ticker import MaxNLocator

    drawn = panel.bars
    shown = 0
    for topology, name, colour in _TOPOLOGIES:
        places = [place for place, row in enumerate(rows) if row.topology == topology]
        if not places:
            continue
        shown += 1
        axes.barh(
            places,
            [drawn[place][0] for place in places],
            _THICKNESS,
            color=COLOURS[colour],
            edgecolor=OUTLINE,
            linewidth=0.5,
            label=name,
        )
        for place in places:
            length, text = drawn[place]
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            note(axes, text, (length, place), (4, 0), va="center", fontsize=8.5, bbox=box)
    whole = all(value.is_integer() for value in panel.values)
    ticks = MaxNLocator(_MAX_TICKS, steps=[1, 2, 5, 10], integer=whole, min_n_ticks=1)
    axes.xaxis.set_major_locator(ticks)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set(xlim=(0, panel.longest * 1.2), xlabel=panel.axis)
    if panel.bound is not None:  # named in the legend, for a text at the line would cover bars
        line = axes.axvline(panel.bound, label=panel.bound_text, color=_BOUND, linewidth=1.4)
        line.set_linestyle((0, (4, 2)))
    axes.spines[["top", "right"]].set_visible(False)
    legend_above(axes, shown + 1, "lower left")
