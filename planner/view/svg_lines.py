"""Line charts of the sweeps as SVG: the iteration time over bandwidth and start-up cost.

Both axes are logarithmic. The mark of a replanned point has a letter for its algorithm and mode;
both charts use the same letters.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log2

from planner.families.iteration.sensitivity import SweepPoint, Sweeps
from planner.model.units import format_ns, unit_of
from planner.view.chart import logarithmic_ticks, tick_text
from planner.view.html import Html, drawing, element, joined, listed
from planner.view.svg import stroke, write

SERIES: Mapping[str, tuple[str, Callable[[SweepPoint], int | None]]] = {
    "ddp": ("DDP with its default buckets", lambda point: point.ddp_ns),
    "kept": ("this plan, kept as it is", lambda point: point.plan_ns),
    "best": ("planned anew", lambda point: point.best_ns),
    "least": ("lower bound", lambda point: point.bound_ns),
}
"""The lines by name: description and time of a point; later lines are drawn on top."""

_WIDTH, _HEIGHT = 560, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 540, 16, 268
_LEAST_RANGE = 1.2
"""The time axis spans at least this factor, so that small differences look small."""

Winner = tuple[str, str]


def winner(point: SweepPoint) -> Winner:
    """Return the algorithms and the mode of the best plan at a point."""
    return " + ".join(point.best.algorithms), point.best.mode


def winners(sweeps: Sweeps) -> dict[Winner, str]:
    """Return a letter for each algorithm and mode that wins at some point, first at factor 1."""
    points = sorted((*sweeps.bandwidth, *sweeps.startup), key=lambda point: point.factor != 1)
    ways = dict.fromkeys(map(winner, points))
    return {way: chr(ord("A") + place) for place, way in enumerate(ways)}


def line_chart(
    points: Sequence[SweepPoint],
    letters: Mapping[Winner, str],
    *,
    title: str,
    axis: str,
    values: Sequence[str],
) -> Html:
    """Return one chart; nothing if an iteration takes no time.

    `points` has at least one point, by increasing factor; `values` are the labels below the
    factors.
    """
    known = [time for point in points for _, pick in SERIES.values() if (time := pick(point))]
    if not known or not all(point.best_ns and point.bound_ns for point in points):
        return Html("")
    low, high = min(known) / 1.08, max(known) * 1.08
    if high / low < _LEAST_RANGE:
        middle = (low * high) ** 0.5
        low, high = middle / _LEAST_RANGE**0.5, middle * _LEAST_RANGE**0.5
    first, last = log2(points[0].factor), log2(points[-1].factor)

    def x(point: SweepPoint) -> float:
        share = (log2(point.factor) - first) / (last - first) if last > first else 0.5
        return _LEFT + 18 + (_RIGHT - _LEFT - 36) * share

    def y(time_ns: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * log2(time_ns / low) / log2(high / low)

    drawn = [_time_axis(low, high, y), *_factor_axis(points, values, axis, x)]
    for name, (_, pick) in SERIES.items():
        places = [(x(point), y(time)) for point in points if (time := pick(point))]
        line = "L".join(f"{across:.2f} {down:.2f}" for across, down in places)
        drawn.append(stroke(f"line {name}", f"M{line}") if places else Html(""))
    for point in points:
        way, at, height = winner(point), x(point), y(point.best_ns)
        times = [
            f"{name} {format_ns(time)}"
            for name, pick in SERIES.values()
            if (time := pick(point)) is not None
        ]
        tooltip = f"× {point.factor}: {', '.join(way)}; {', '.join(times)}"
        drawn += [
            element("circle", element("title", tooltip), class_="winner", cx=at, cy=height, r=8.5),
            write(letters[way], at, height, "middle onwinner"),
        ]
    label = f"Line chart: time of an iteration over {axis}"
    chart = drawing("chart", (_WIDTH, _HEIGHT), *drawn, label=label)
    return element("figure", element("figcaption", title), chart)


def _time_axis(low: float, high: float, y: Callable[[float], float]) -> Html:
    unit, length = unit_of(round(high / 2))
    parts = []
    for value in logarithmic_ticks(low / length, high / length):
        at = y(value * length)
        parts += [
            stroke("grid", f"M{_LEFT} {at:.2f}H{_RIGHT}"),
            write(tick_text(value), _LEFT - 8, at, "end"),
        ]
    middle = (_TOP + _BOTTOM) / 2
    turned, place = f"rotate(-90 14 {middle})", {"x": 14.0, "y": middle}
    parts.append(element("text", f"iteration ({unit})", class_="middle", transform=turned, **place))
    return element("g", *parts, class_="axis")


def _factor_axis(
    points: Sequence[SweepPoint],
    values: Sequence[str],
    axis: str,
    x: Callable[[SweepPoint], float],
) -> Iterator[Html]:
    for point, value in zip(points, values, strict=True):
        at, given = x(point), point.factor == 1
        yield stroke("moment" if given else "grid", f"M{at:.2f} {_TOP}V{_BOTTOM}")
        bold = "middle strong" if given else "middle"
        yield write(f"× {point.factor}", at, _BOTTOM + 14, bold)
        yield write(value, at, _BOTTOM + 31, f"{bold} small")
    yield write(axis, (_LEFT + _RIGHT) / 2, _BOTTOM + 56, "middle")


def line_legend(letters: Mapping[Winner, str]) -> Html:
    """Return the legend of the lines and letters."""
    lines = [
        joined(
            drawing("swatch long", (30, 12), stroke(f"line {name}", "M0 6H30")),
            f" {text}",
        )
        for name, (text, _) in reversed(tuple(SERIES.items()))
    ]
    names = [
        joined(element("b", letter, class_="letter"), f" {algorithm}, {mode}")
        for (algorithm, mode), letter in letters.items()
    ]
    return listed(*lines, *names, class_="legend")
