"""Synchronisation by slices for a terminal: concurrent pulls at each node, times of each method."""

from planner.draw.chart import Chart
from planner.draw.scaling import slowdown_text
from planner.printing import printable
from planner.units import format_ns
from planner.views import HotSpots, Pulls

__all__ = ["above_bound", "text_hot_spots"]

_MAX_TEXT_CELLS = 16
_MAX_NAME = 24


def above_bound(time_ns: int, bound_ns: int | None) -> str:
    """Return the distance of a time to the bound: 3.21%, and from twice on 12.3×."""
    if time_ns == bound_ns:
        return "the lower bound"
    if not bound_ns:
        return ""
    longer = slowdown_text(time_ns, bound_ns)
    return f"{longer} the bound" if longer.endswith("×") else f"{longer} above the bound"


def text_hot_spots(chart: Chart[HotSpots], width: int = 80) -> str:
    """Return `chart` as text, about `width` characters wide."""
    spots = chart.view
    parts = [chart.title, *(_map(name, rows, spots.nodes) for name, rows in spots.maps)]
    return "\n\n".join([*parts, _bars(chart, width)])


def _map(name: str, rows: Pulls, nodes: int) -> str:
    """Return one row per round with the number of pulls at each node."""
    count = min(len(rows), _MAX_TEXT_CELLS)
    each = max(len(str(max(map(max, rows)))), len(str(count - 1)))
    cut = f" (the first {count} of {nodes})" if count < nodes else ""
    lines = [
        f"pulls of gradients at once, {name}: nodes →, turns ↓{cut}",
        "      " + " ".join(str(node).rjust(each) for node in range(count)),
    ]
    for turn, row in enumerate(rows[:count]):
        cells = (str(pulls or "·").rjust(each) for pulls in row[:count])
        lines.append(f"{turn:>4}  {' '.join(cells)}")
    return "\n".join(lines)


def _bars(chart: Chart[HotSpots], width: int) -> str:
    ranking = chart.view.ranking
    names = [printable(name)[:_MAX_NAME] for name, _ in ranking]
    ends = [
        f"{format_ns(time)}  {above_bound(time, chart.lower_bound_ns)}".rstrip()
        for _, time in ranking
    ]
    margin = max(map(len, names)) + 2
    columns = max(10, width - margin - max(map(len, ends)) - 1)
    longest = max(time for _, time in ranking) or 1
    lines = []
    for name, (method, time), end in zip(names, ranking, ends, strict=True):
        bar = ("█" if method == chart.view.method else "▒") * max(
            (time * columns + longest // 2) // longest, time > 0
        )
        lines.append(f"{name:<{margin}}{bar} {end}")
    return "\n".join(lines)
