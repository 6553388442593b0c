"""Job configurations as text: where the time goes, the ranking, and the alternatives."""

from collections.abc import Sequence

from planner.model.units import printable, three_digits
from planner.solving.views import (
    PHASES,
    LayerTime,
    Point,
    Range,
    Scaling,
    epoch_text,
)
from planner.view.chart import Chart, shortened
from planner.view.table import cut, format_table


def factor_text(factor: float | None) -> str:
    """Return a constant's factor as text; – if no end was found."""
    return "–" if factor is None else three_digits(factor)


def slowdown_text(epoch_ns: int, best_ns: int) -> str:
    """Return the slowdown against the best epoch: 0%, 3.21%, and from twice on 12.3×."""
    if epoch_ns == best_ns or not best_ns:
        return "0%"
    ratio = epoch_ns / best_ns
    if ratio >= 2:
        return f"{ratio:.4g}×"
    return "<0.01%" if ratio < 1.00005 else f"{ratio - 1:.2%}"


def grouped(layers: Sequence[LayerTime], most: int) -> list[LayerTime]:
    """Return at most `most` rows: single layers, or ranges of equal length."""
    if len(layers) <= most:
        return [LayerTime(printable(layer.name), layer.phases_ns) for layer in layers]
    each = -(-len(layers) // most)
    ranges = []
    for start in range(0, len(layers), each):
        members = layers[start : start + each]
        sums = tuple(map(sum, zip(*(layer.phases_ns for layer in members), strict=True)))
        ranges.append(LayerTime(f"layers {start} … {start + len(members) - 1}", sums))
    return ranges


_LETTERS = dict(zip(PHASES, "fbucw", strict=True))
_MAX_LAYERS = 24
_MAX_NAME = 24


def text_scaling(chart: Chart[Scaling], width: int = 80) -> str:
    """Return `chart` as text, `width` characters wide."""
    scaling = chart.view
    parts = [
        chart.title,
        _bars(grouped(scaling.layers, _MAX_LAYERS), width),
        " · ".join(f"{letter} {phase}" for phase, letter in _LETTERS.items()),
        _ranking(scaling.ranking),
    ]
    if scaling.front:
        rows = [
            [str(point.machines), epoch_text(point.epoch_ns), *_triple(point)]
            for point in scaling.front
        ]
        header = ["machines", "epoch", "workers", "replicas", "servers"]
        parts.append(f"best for each number of machines\n{format_table(header, cut(rows))}")
    if scaling.ranges:
        parts.append(_ranges(scaling.ranges))
    return "\n\n".join(parts)


def _bars(layers: list[LayerTime], width: int) -> str:
    """Return one bar per layer; each letter is an equal stretch of time."""
    names = [shortened(layer.name, _MAX_NAME) for layer in layers]
    whole = sum(layer.total_ns for layer in layers)
    longest = max(layer.total_ns for layer in layers) or 1
    margin = max(map(len, names)) + 2
    times = [
        f"{epoch_text(layer.total_ns)} {layer.total_ns / (whole or 1):6.1%}" for layer in layers
    ]
    columns = max(10, width - margin - max(map(len, times)) - 2)
    lines = []
    for name, layer, time in zip(names, layers, times, strict=True):
        bar, spent, drawn = "", 0, 0
        for phase, length in zip(PHASES, layer.phases_ns, strict=True):
            spent += length
            end = (spent * columns + longest // 2) // longest
            bar += _LETTERS[phase] * (end - drawn)
            drawn = end
        lines.append(f"{name:<{margin}}{bar:<{columns}}{time:>{width - margin - columns}}")
    return "\n".join(lines)


def _ranking(points: tuple[Point, ...]) -> str:
    rows = [
        [
            str(rank),
            *_triple(point),
            str(point.machines),
            epoch_text(point.epoch_ns),
            slowdown_text(point.epoch_ns, points[0].epoch_ns),
        ]
        for rank, point in enumerate(points, start=1)
    ]
    header = ["rank", "workers", "replicas", "servers", "machines", "epoch", "slower by"]
    return format_table(header, cut(rows))


def _triple(point: Point) -> tuple[str, str, str]:
    return str(point.workers), str(point.replicas), str(point.servers)


def _ranges(ranges: tuple[Range, ...]) -> str:
    rows = [
        [factors.constant, factor_text(factors.low), factor_text(factors.high)]
        for factors in ranges
    ]
    text = "factors of each constant between which this configuration stays the best\n"
    return text + format_table(["constant", "stays best from", "to"], rows)
