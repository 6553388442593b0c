"""How methods do over many cases, as a figure: speed-ups, and distances to the bound, row by row.

Every case is a small mark, their range a line, their geometric mean a large mark; mean and range
stand at the end of the row as numbers. Scales of computation differ in shape and colour, and have a
line each. A few cases far out shall not hide how the others differ: a range that goes on beyond the
axis ends in an arrow.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, log, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peer_cases import BASELINE, PeerCase, Ratios, Standing, standings

from planner.families.iteration import JOINT
from planner.model.units import printable
from planner.view.chart import shortened, shorter_title
from planner.view.style import COLOURS

sys.path.append(str(Path(__file__).with_name("reproduction")))

from figures import OUTLINE, figure_in, set_logarithmic, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_INCHES = 11.0
_LINE_INCHES = 0.19
_STYLES = (("o", COLOURS[5]), ("s", COLOURS[1]), ("^", COLOURS[2]), ("D", COLOURS[4]))
MAX_SCALES = len(_STYLES)
"""More lines in a row could not be told apart."""
_MAX_COLUMNS = 3
"""Entries of the legend side by side."""
_FILLED = 0.62
"""Share of a row's room that its lines take."""
_EDGE = 1.06
"""Room beyond the outermost marks, as a factor."""
_FARTHEST = 3.0
"""Farther cases, as a factor from 1 or from the farthest mean if that is farther, are left out."""
_NICE = (1, 1.5, 2, 3, 5, 7)
_MAX_TICKS = 8
_NEAR = 0.06
"""Share of the axis within which a tick is too close to the one at 1."""
_STEPS = 150
"""Cases nearer to each other than the axis over so many are one mark."""
_MAX_NAME = 40


@dataclass(frozen=True, slots=True)
class PeersChart:
    """Standings of methods at some scales of computation.

    Attributes
    ----------
    title : str
        What was planned.
    scales : tuple of (float, tuple of Standing)
        At each of at most `MAX_SCALES` scales the same methods; at least one of each.
    """

    title: str
    scales: tuple[tuple[float, tuple[Standing, ...]], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", shorter_title(self.title))

    @property
    def methods(self) -> list[str]:
        """The joint plan, then by mean speed-up over all cases; those without any last."""
        values: dict[str, list[float]] = {}
        for _, rows in self.scales:
            for standing in rows:
                values.setdefault(standing.method, []).extend(
                    standing.speedup.values if standing.speedup else ()
                )
        gains = {
            name: Ratios(tuple(speedups)).mean if speedups else 0
            for name, speedups in values.items()
        }
        return sorted(gains, key=lambda name: (name != JOINT, -gains[name]))


@dataclass(frozen=True, slots=True)
class _Panel:
    """What one panel shows of each standing."""

    title: str
    axis: str
    field: str

    def spread(self, standing: Standing) -> Ratios | None:
        spread: Ratios | None = getattr(standing, self.field)
        return spread

    @property
    def column(self) -> str:
        return "mean (range)" if self.field == "speedup" else "mean above (worst)"

    def text(self, spread: Ratios) -> str:
        if self.field == "speedup":
            return f"{spread.mean:.2f}× ({_factor(spread.least)}–{_factor(spread.most)})"
        return f"{_share(spread.mean - 1)} ({_share(spread.most - 1)})"

    def limits(self, chart: PeersChart) -> tuple[float, float]:
        """Return from where to where the axis goes."""
        spreads = [self.spread(standing) for _, standings in chart.scales for standing in standings]
        known = [spread for spread in spreads if spread is not None]
        means = [1.0, *(spread.mean for spread in known)]
        low = max(min([1.0, *(spread.least for spread in known)]), min(means) / _FARTHEST)
        high = min(max([1.0, *(spread.most for spread in known)]), max(means) * _FARTHEST)
        return low / _EDGE, high * _EDGE


_PANELS = (
    _Panel(
        f"speed-up over {BASELINE}: to the right is faster",
        f"time with {BASELINE} / time with the method (×, logarithmic)",
        "speedup",
    ),
    _Panel(
        "distance to the bound: to the left is better",
        "time with the method / lower bound of the joint plan (×, logarithmic)",
        "over_bound",
    ),
)


def _fill(figure: "Figure", chart: PeersChart) -> None:
    methods = chart.methods
    lines = len(methods) * (len(chart.scales) + 0.6)
    figure.set_size_inches(_WIDTH_INCHES, 1.9 + _LINE_INCHES * lines)
    grid = figure.add_gridspec(1, len(_PANELS))
    for place, panel in enumerate(_PANELS):
        axes = figure.add_subplot(grid[place])
        _draw_rows(axes, chart, panel, methods)
        names = [shortened(printable(_name(method)), _MAX_NAME) for method in methods]
        axes.set_yticks(range(len(names)), [""] * len(names) if place else names, parse_math=False)
        axes.tick_params(axis="y", length=0, labelsize=9)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_title(panel.title, fontsize=10, loc="left", parse_math=False)
        axes.set_xlabel(panel.axis, fontsize=9)
        axes.spines[["top", "right", "left"]].set_visible(False)
    _draw_legend(figure, chart)


def save_peers(chart: PeersChart, path: Path) -> None:
    """Draw the chart below its title."""
    with figure_in(path) as figure:
        write_title(figure, chart.title)
        _fill(figure, chart)


def _name(method: str) -> str:
    return f"{method} (joint plan)" if method == JOINT else method


def _draw_rows(axes: "Axes", chart: PeersChart, panel: _Panel, methods: Sequence[str]) -> None:
    from matplotlib.ticker import FixedLocator

    low, high = panel.limits(chart)
    for row in range(0, len(methods), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#F3F3F3", linewidth=0, zorder=0)
    for line, (_, rows) in enumerate(chart.scales):
        known = {standing.method: panel.spread(standing) for standing in rows}
        for row, method in enumerate(methods):
            at = row + _FILLED * ((line + 0.5) / len(chart.scales) - 0.5)
            spread = known.get(method)
            if spread is None:
                _write(axes, at, "–")
                continue
            _draw_spread(axes, at, spread, line, (low, high))
            _write(axes, at, panel.text(spread))
    _write(axes, -0.5, panel.column, above=True)
    axes.axvline(1, color=OUTLINE, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
    set_logarithmic(axes, "x", (low, high))
    powers = range(floor(log10(low)), floor(log10(high)) + 1)
    nice = [digit * 10.0**power for power in powers for digit in _NICE]
    shown = [tick for tick in nice if low <= tick <= high]
    if not 3 <= len(shown) <= _MAX_TICKS:
        shown = list(axes.get_xticks())
    ticks = [tick for tick in shown if abs(log(tick)) >= _NEAR * log(high / low)]
    axes.xaxis.set_major_locator(FixedLocator(sorted([1.0, *ticks])))
    axes.tick_params(axis="x", labelsize=8.5)


def _draw_spread(
    axes: "Axes", at: float, spread: Ratios, line: int, limits: tuple[float, float]
) -> None:
    """Draw a range, its cases and their mean."""
    marker, colour = _STYLES[line]
    mark: dict[str, Any] = {"marker": marker, "linestyle": "none", "clip_on": False}
    low, high = limits
    step = log(high / low) / _STEPS
    apart = {round(log(ratio) / step): ratio for ratio in spread.values if low <= ratio <= high}
    ends = [max(spread.least, low), min(spread.most, high)]
    axes.plot(ends, [at, at], color=OUTLINE, linewidth=0.8, zorder=2)
    for end, arrow, beyond in ((low, "<", spread.least < low), (high, ">", spread.most > high)):
        if beyond:
            axes.plot([end], [at], marker=arrow, color=OUTLINE, markersize=4.5, clip_on=False)
    axes.plot(
        list(apart.values()),
        [at] * len(apart),
        color=colour,
        markersize=3.2,
        markeredgewidth=0,
        alpha=0.55,
        zorder=3,
        **mark,
    )
    axes.plot(
        [spread.mean],
        [at],
        color=colour,
        markersize=6.5,
        markeredgecolor=OUTLINE,
        markeredgewidth=0.9,
        zorder=4,
        **mark,
    )


def _write(axes: "Axes", at: float, text: str, *, above: bool = False) -> None:
    """Write at the end of a line, outside the axes, where no mark can be."""
    axes.annotate(
        text,
        (1, at),
        (6, 3 if above else 0),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        ha="left",
        va="bottom" if above else "center",
        fontsize=8,
        color=OUTLINE,
    )


def _draw_legend(figure: "Figure", chart: PeersChart) -> None:
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], marker=marker, color=colour, linestyle="none", markeredgecolor=OUTLINE)
        for marker, colour in _STYLES[: len(chart.scales)]
    ]
    names = [f"computation × {scale:.4g}" for scale, _ in chart.scales]
    note = "large mark: geometric mean; small marks: cases; line: range; arrow: it goes on"
    entries.append(Line2D([], [], color=OUTLINE, linewidth=0.8))
    figure.legend(
        entries,
        [*names, note],
        loc="outside lower left",
        ncols=min(len(entries), _MAX_COLUMNS),
        frameon=False,
        fontsize=8.5,
    )


def _factor(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.095 else f"{ratio:.2g}"


def _share(share: float) -> str:
    """Return a distance as a person reads it."""
    if share < 5e-5:
        return "<0.01%" if share > 1e-12 else "0%"
    return f"{share:.2%}" if share < 0.1 else f"{share:,.0%}"


def chart_of(
    cases: Sequence[PeerCase], scales: Iterable[Fraction], methods: Sequence[str]
) -> PeersChart:
    """Return what is drawn: every method's standing at every scale of computation."""
    profiles, clusters = (
        {getattr(case, name) for case in cases} for name in ("profile", "cluster")
    )
    scaled = tuple(
        (float(scale), standings([case for case in cases if case.computation == scale], methods))
        for scale in scales
    )
    gains = [row.speedup.mean for _, rows in scaled for row in rows[:1] if row.speedup]
    where = f"{_counted(profiles, 'profile')} on {_counted(clusters, 'cluster')}"
    if not gains:
        return PeersChart(f"There is no plan for {where}", scaled)
    times = f"{min(gains):.2f} to {max(gains):.2f}" if len(gains) > 1 else f"{gains[0]:.2f}"
    return PeersChart(
        f"Joint plans of whole iterations are in the mean {times} times as fast as those of "
        f"DDP: {where}",
        scaled,
    )


def _counted(names: Iterable[str], what: str) -> str:
    known = list(names)
    return known[0] if len(known) == 1 else f"{len(known)} {what}s"
