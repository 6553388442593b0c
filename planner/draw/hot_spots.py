"""What is drawn of a synchronisation: who is asked by how many at once, and what each way costs."""

from dataclasses import dataclass

from planner.draw.chart import shorter_title
from planner.printing import printable
from planner.units import format_ns
from planner.views import HotSpots, Pulls

__all__ = ["HotSpotsChart", "text_hot_spots"]

_MAX_TEXT_CELLS = 16
_MAX_NAME = 24


@dataclass(frozen=True, slots=True)
class HotSpotsChart:
    """A synchronisation with the words around it.

    Attributes
    ----------
    title : str
        What the plan is and what it costs.
    spots : HotSpots
        What is drawn.
    lower_bound_ns : int or None
        Proven bound on every way to synchronise.
    """

    title: str
    spots: HotSpots
    lower_bound_ns: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", shorter_title(self.title))

    def above_bound(self, time_ns: int) -> str:
        """Return how much longer than the bound a time is: 3.21%, and from twice on 12.3×."""
        bound = self.lower_bound_ns
        if time_ns == bound:
            return "the lower bound"
        if not bound:
            return ""
        ratio = time_ns / bound
        if ratio >= 2:
            return f"{ratio:.4g}× the bound"
        return f"{'<0.01%' if ratio < 1.00005 else f'{ratio - 1:.2%}'} above the bound"


def text_hot_spots(chart: HotSpotsChart, width: int = 80) -> str:
    """Return `chart` as text, about `width` characters wide."""
    spots = chart.spots
    parts = [chart.title, *(_map(name, rows, spots.nodes) for name, rows in spots.maps)]
    return "\n\n".join([*parts, _bars(chart, width)])


def _map(name: str, rows: Pulls, nodes: int) -> str:
    """Return one row a turn, with the number of pulls at each node."""
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


def _bars(chart: HotSpotsChart, width: int) -> str:
    ranking = chart.spots.ranking
    names = [printable(name)[:_MAX_NAME] for name, _ in ranking]
    ends = [f"{format_ns(time)}  {chart.above_bound(time)}".rstrip() for _, time in ranking]
    margin = max(map(len, names)) + 2
    columns = max(10, width - margin - max(map(len, ends)) - 1)
    longest = max(time for _, time in ranking) or 1
    lines = []
    for name, (method, time), end in zip(names, ranking, ends, strict=True):
        bar = ("█" if method == chart.spots.method else "▒") * max(
            (time * columns + longest // 2) // longest, time > 0
        )
        lines.append(f"{name:<{margin}}{bar} {end}")
    return "\n".join(lines)
