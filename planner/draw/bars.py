"""What is drawn of things that are compared by numbers: named bars in groups, in panels."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.draw.chart import shorter_title
from planner.units import format_ns, unit_of
from planner.views import Compared

__all__ = ["BarChart", "BarPanel", "BarSeries", "comparison_bars"]

_TOPOLOGIES = (("bcube", "BCube", 0), ("fattree", "Fat-Tree", 1))
"""As they are called in data and by people, and their colours."""


CUT = "»"
"""Stands at the end of a bar that is longer than it is drawn."""

_MOST_OF_MEDIAN = 3
"""In a comparison, times this many times the median one are cut."""


@dataclass(frozen=True, slots=True)
class BarSeries:
    """Bars of one colour, at most one in each group.

    Attributes
    ----------
    name : str
        What a reader should see.
    values : tuple of float or None
        Length of the bar in each group, not negative; None where there is none.
    texts : tuple of str
        What stands at the end of each bar.
    colour : int
        Place in the palette (`planner.draw.style.COLOURS`).
    """

    name: str
    values: tuple[float | None, ...]
    texts: tuple[str, ...]
    colour: int


@dataclass(frozen=True, slots=True)
class BarPanel:
    """Bars that are measured in the same unit.

    Attributes
    ----------
    title : str
        What is compared.
    unit : str
        The axis, with its unit.
    series : tuple of BarSeries
        The bars, in the order in which they stand in a group.
    bound : float or None
        A proven bound on all of the values, drawn across them.
    bound_text : str
        What stands beside the bound.
    limit : float or None
        Longer bars are cut, so that a few of them do not hide how the others differ.
    """

    title: str
    unit: str
    series: tuple[BarSeries, ...]
    bound: float | None = None
    bound_text: str = ""
    limit: float | None = None

    @property
    def values(self) -> list[float]:
        """All lengths of bars."""
        return [value for series in self.series for value in series.values if value is not None]

    @property
    def longest(self) -> float:
        """The longest bar as it is drawn, at least the bound; 1 if all of them are 0."""
        longest = max(self.values, default=0)
        if self.limit is not None:
            longest = min(longest, self.limit)
        return max(longest, self.bound or 0) or 1

    @property
    def axis(self) -> str:
        """The unit, and that bars are cut if some are."""
        cut = max(self.values, default=0) > self.longest
        return f"{self.unit}; {CUT} cut" if cut else self.unit

    def bar(self, value: float, text: str) -> tuple[float, str]:
        """Return how long a bar is drawn, and what stands at its end."""
        return (self.longest, f"{CUT} {text}") if value > self.longest else (value, text)


@dataclass(frozen=True, slots=True)
class BarChart:
    """Panels over the same groups.

    Attributes
    ----------
    title : str
        What is compared, and for what.
    groups : tuple of str
        Names of the groups.
    panels : tuple of BarPanel
        What is compared.
    horizontal : bool
        Whether groups are rows, which share their names; else they stand side by side.
    notes : tuple of str
        What to say below the name of each group that stands beside others; empty for nothing.
    """

    title: str
    groups: tuple[str, ...]
    panels: tuple[BarPanel, ...]
    horizontal: bool = False
    notes: tuple[str, ...] = ()

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
    """Return the time and the switches of each algorithm, the fastest first.

    Parameters
    ----------
    title : str
        For which network and which gradient.
    compared : sequence of Compared
        At least one.
    lower_bound_ns : int, optional
        Bound on the time of those on a BCube.
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
    """Return a series for each topology there is, with bars in its own rows only."""
    series = []
    for topology, name, colour in _TOPOLOGIES:
        own = [row.topology == topology for row in rows]
        if any(own):
            shown = (v if mine else None for v, mine in zip(values, own, strict=True))
            words = (t if mine else "" for t, mine in zip(texts, own, strict=True))
            series.append(BarSeries(name, tuple(shown), tuple(words), colour))
    return tuple(series)
