"""The data of bar charts: named bars in groups, in panels."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from planner.model.units import format_ns, printable, unit_of
from planner.solving.views import Compared
from planner.view.chart import shortened, shorter_title
from planner.view.figure import saving
from planner.view.style import COLOURS, OUTLINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_TOPOLOGIES = (("bcube", "BCube", 0), ("fattree", "Fat-Tree", 1))
"""Name in data, name in text, and colour of each topology."""


CUT = "»"
"""Marks a bar that is drawn shorter than its value."""

_MOST_OF_MEDIAN = 3
"""Longer times (multiples of the median) are cut, so that the others stay distinguishable."""


@dataclass(frozen=True, slots=True)
class BarSeries:
    """Bars of one colour, at most one per group."""

    name: str
    values: tuple[float | None, ...]  # length in each group, >= 0; None: no bar
    texts: tuple[str, ...]  # at the end of each bar
    colour: int  # index into `planner.view.style.COLOURS`


@dataclass(frozen=True, slots=True)
class BarPanel:
    """Bars that share a unit, with an optional proven bound on all values."""

    title: str
    unit: str  # the axis's label with the unit
    series: tuple[BarSeries, ...]
    bound: float | None = None
    bound_text: str = ""
    limit: float | None = None  # longer bars are cut

    @property
    def values(self) -> list[float]:
        """The lengths of all bars."""
        return [value for series in self.series for value in series.values if value is not None]

    @property
    def longest(self) -> float:
        """The length of the axis: the longest drawn bar or the bound; 1 if all are 0."""
        longest = max(self.values, default=0)
        if self.limit is not None:
            longest = min(longest, self.limit)
        return max(longest, self.bound or 0) or 1

    @property
    def axis(self) -> str:
        """The axis's label, with a note if bars are cut."""
        cut = max(self.values, default=0) > self.longest
        return f"{self.unit}; {CUT} cut" if cut else self.unit

    def bar(self, value: float, text: str) -> tuple[float, str]:
        """Return the drawn length of a bar and the text at its end."""
        return (self.longest, f"{CUT} {text}") if value > self.longest else (value, text)


@dataclass(frozen=True, slots=True)
class BarChart:
    """Panels over the same groups."""

    title: str
    groups: tuple[str, ...]
    panels: tuple[BarPanel, ...]
    horizontal: bool = False  # groups are rows, not columns
    notes: tuple[str, ...] = ()  # below the name of each column

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", shorter_title(self.title))
        for panel in self.panels:
            for series in panel.series:
                if not len(series.values) == len(series.texts) == len(self.groups):
                    raise ValueError(f"{series.name} needs a value and a text for each group")
        if self.notes and len(self.notes) != len(self.groups):
            raise ValueError("expected a note for each group, or none")


def comparison_bars(
    title: str, compared: Sequence[Compared], lower_bound_ns: int | None = None
) -> BarChart:
    """Return a chart of the time and the switches of each algorithm, the fastest first.

    `lower_bound_ns` is a bound on the time of the algorithms on a BCube.
    """
    rows = sorted(compared, key=lambda row: (row.time_ns, row.switches, row.name))
    limit = max(_MOST_OF_MEDIAN * rows[len(rows) // 2].time_ns, lower_bound_ns or 0)
    unit, scale = unit_of(min(rows[-1].time_ns, limit))
    bound, bound_text = None, ""
    if lower_bound_ns is not None:
        bound, bound_text = (
            lower_bound_ns / scale,
            f"lower bound on BCube {format_ns(lower_bound_ns)}",
        )
    return BarChart(
        title,
        tuple(row.name for row in rows),
        (
            BarPanel(
                "time of one synchronisation",
                f"time ({unit})",
                _by_topology(
                    rows,
                    [row.time_ns / scale for row in rows],
                    [format_ns(row.time_ns) for row in rows],
                ),
                bound,
                bound_text,
                limit / scale,
            ),
            BarPanel(
                "cost of the network",
                "switches",
                _by_topology(
                    rows,
                    [float(row.switches) for row in rows],
                    [_count(row.switches) for row in rows],
                ),
            ),
        ),
        horizontal=True,
    )


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**9 else f"{number:.3g}"


def _by_topology(
    rows: Sequence[Compared], values: Sequence[float], texts: Sequence[str]
) -> tuple[BarSeries, ...]:
    """Return one series per topology, with bars in the rows of that topology only."""
    series = []
    for topology, name, colour in _TOPOLOGIES:
        own = [row.topology == topology for row in rows]
        if any(own):
            shown = (v if mine else None for v, mine in zip(values, own, strict=True))
            words = (t if mine else "" for t, mine in zip(texts, own, strict=True))
            series.append(BarSeries(name, tuple(shown), tuple(words), colour))
    return tuple(series)


# ---
# Bar charts as figures: panels side by side, with groups as columns or rows.

_WIDTH_INCHES = 11.0
_COLUMNS_INCHES = 3.6
_ROW_INCHES = 0.27
_FILLED = 0.76
"""Share of a group's width that its bars fill."""
_MAX_NAME = 40
_MAX_COLUMN = 26
"""Longer column names are wrapped (characters)."""
_MAX_TICKS = 6
_BOUND = "#B00020"


def _fill(figure: "Figure", chart: BarChart) -> None:
    inner = _ROW_INCHES * len(chart.groups) if chart.horizontal else _COLUMNS_INCHES
    figure.set_size_inches(_WIDTH_INCHES, 1.6 + inner)
    weights = [_weight(chart, panel) for panel in chart.panels]
    grid = figure.add_gridspec(1, len(chart.panels), width_ratios=weights)
    for place, panel in enumerate(chart.panels):
        axes = figure.add_subplot(grid[place])
        _draw_bars(axes, chart, panel)
        names = [shortened(printable(name), _MAX_NAME) for name in chart.groups]
        if chart.horizontal:
            _label_rows(axes, panel, [""] * len(names) if place else names)
        else:
            _label_columns(axes, panel, _with_notes(names, chart.notes))
        _draw_legend(axes, panel)


save_bars = saving(_fill)


def _with_notes(names: list[str], notes: tuple[str, ...]) -> list[str]:
    """Return the names with their notes below, wrapped."""
    lines = zip_longest(names, notes, fillvalue="")
    return [
        f"{fill(name, _MAX_COLUMN)}\n{fill(note, _MAX_COLUMN)}".rstrip() for name, note in lines
    ]


def _weight(chart: BarChart, panel: BarPanel) -> float:
    """Return the relative width of a panel."""
    if chart.horizontal:
        return 3 if panel is chart.panels[0] else 2
    return 1 + len(panel.series)


def _draw_bars(axes: "Axes", chart: BarChart, panel: BarPanel) -> None:
    """Draw the bars of each group side by side, with their texts at the ends."""
    groups = range(len(chart.groups))
    present = [
        [series for series in panel.series if series.values[at] is not None] for at in groups
    ]
    thickness = _FILLED / max(map(len, present), default=1)
    for series in panel.series:
        own = [at for at in groups if series.values[at] is not None]
        places = [
            at + (present[at].index(series) - (len(present[at]) - 1) / 2) * thickness for at in own
        ]
        bars = [panel.bar(series.values[at] or 0, series.texts[at]) for at in own]
        lengths = [length for length, _ in bars]
        style: dict[str, Any] = {
            "color": COLOURS[series.colour],
            "edgecolor": OUTLINE,
            "linewidth": 0.5,
            "label": printable(series.name),
        }
        if chart.horizontal:
            axes.barh(places, lengths, thickness, **style)
        else:
            axes.bar(places, lengths, thickness, **style)
        for place, (length, text) in zip(places, bars, strict=True):
            axes.annotate(
                printable(text),
                (length, place) if chart.horizontal else (place, length),
                (4, 0) if chart.horizontal else (0, 3),
                textcoords="offset points",
                ha="left" if chart.horizontal else "center",
                va="center" if chart.horizontal else "bottom",
                fontsize=8.5,
                parse_math=False,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )


def _label_rows(axes: "Axes", panel: BarPanel, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.tick_params(axis="y", length=0, labelsize=8.5)
    axes.set_ylim(len(names) - 0.4, -0.6)
    _measure(axes, "x", panel, 1.2)
    if panel.bound is not None:
        _name_bound(panel, axes.axvline(panel.bound))


def _label_columns(axes: "Axes", panel: BarPanel, names: list[str]) -> None:
    axes.set_xticks(range(len(names)), names, parse_math=False)
    axes.tick_params(axis="x", length=0, labelsize=9)
    axes.set_xlim(-0.55, len(names) - 0.45)
    _measure(axes, "y", panel, 1.12)
    if panel.bound is not None:
        _name_bound(panel, axes.axhline(panel.bound))


def _measure(axes: "Axes", which: Literal["x", "y"], panel: BarPanel, room: float) -> None:
    """Label the axis along the bars, with room for the text after the longest bar."""
    from matplotlib.ticker import MaxNLocator

    whole = all(float(value).is_integer() for value in panel.values)
    axis = axes.xaxis if which == "x" else axes.yaxis
    ticks = MaxNLocator(_MAX_TICKS, steps=[1, 2, 5, 10], integer=whole, min_n_ticks=1)
    axis.set_major_locator(ticks)
    axis.set_major_formatter("{x:,g}")
    axes.set(**{f"{which}lim": (0, panel.longest * room), f"{which}label": panel.axis})


def _name_bound(panel: BarPanel, line: "Line2D") -> None:
    """Name the bound in the legend; a text at its line would cover bars."""
    line.set(color=_BOUND, linewidth=1.4, linestyle=(0, (4, 2)), label=printable(panel.bound_text))


def _draw_legend(axes: "Axes", panel: BarPanel) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(panel.title, fontsize=10, loc="left", pad=24, parse_math=False)
    legend = axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=len(panel.series) + 1,
        frameon=False,
        fontsize=8.5,
        borderaxespad=0.2,
        borderpad=0,
        handlelength=1.2,
        columnspacing=1.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
