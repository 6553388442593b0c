"""The data of bar charts: named bars in groups, in panels."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.draw.chart import shorter_title
from planner.units import format_ns, unit_of
from planner.views import Compared

__all__ = ["BarChart", "BarPanel", "BarSeries", "comparison_bars"]

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
    colour: int  # index into `planner.draw.style.COLOURS`


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
