"""Job configurations as text: where the time goes, the ranking, and the alternatives."""

from collections.abc import Sequence
from math import log

from planner.model.units import printable, three_digits
from planner.solving.views import (
    PHASES,
    ConstantsRegret,
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
_MAX_CELLS = 20
"""With more workers or replicas several share a cell."""
_SHADES = "0123456789"


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
        parts.append("best for each number of machines\n" + _front(scaling.front))
    if scaling.landscape:
        parts.append(_landscape(scaling.landscape))
    if scaling.ranges or scaling.regret is not None:
        parts.append(_ranges(scaling.ranges, scaling.regret))
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


def _front(points: tuple[Point, ...]) -> str:
    rows = [[str(point.machines), epoch_text(point.epoch_ns), *_triple(point)] for point in points]
    return format_table(["machines", "epoch", "workers", "replicas", "servers"], cut(rows))


def _triple(point: Point) -> tuple[str, str, str]:
    return str(point.workers), str(point.replicas), str(point.servers)


def _landscape(points: tuple[Point, ...]) -> str:
    """Return a map of digits, from 0 (fastest) to 9 (slowest) on a logarithmic scale."""
    columns = _bins(sorted({point.workers for point in points}))
    rows = _bins(sorted({point.replicas for point in points}))
    cells: dict[tuple[int, int], int] = {}
    for point in points:
        cell = columns[point.workers], rows[point.replicas]
        cells[cell] = min(cells.get(cell, point.epoch_ns), point.epoch_ns)
    least, most = min(cells.values()), max(cells.values())
    span = log(most / least) if most > least > 0 else 0

    def digit(cell: tuple[int, int]) -> str:
        if cell not in cells:
            return " "
        place = log(cells[cell] / least) / span if span else 0
        return _SHADES[min(int(place * len(_SHADES)), len(_SHADES) - 1)]

    names_of_columns, names_of_rows = _names(columns), _names(rows)
    each = max(map(len, names_of_columns))
    margin = max(map(len, names_of_rows)) + 2
    title = (
        f"time of an epoch over workers of a replica (→) and replicas (↓): 0 {epoch_text(least)} "
        f"… 9 {epoch_text(most)}"
    )
    lines = [
        title,
        " " * margin + " ".join(name.rjust(each) for name in names_of_columns),
    ]
    for row, name in enumerate(names_of_rows):
        line = " ".join(digit((column, row)).rjust(each) for column in range(len(names_of_columns)))
        lines.append(f"{name:>{margin - 2}}  {line}".rstrip())
    return "\n".join(lines)


def _bins(values: list[int]) -> dict[int, int]:
    """Return the cell of each value: one each, or growing ranges if there are too many."""
    if len(values) <= _MAX_CELLS:
        return {value: place for place, value in enumerate(values)}
    ratio = values[-1] / values[0]
    raw = [int(log(value / values[0], ratio) * (_MAX_CELLS - 1e-6)) for value in values]
    compact = {cell: place for place, cell in enumerate(sorted(set(raw)))}
    return {value: compact[cell] for value, cell in zip(values, raw, strict=True)}


def _names(bins: dict[int, int]) -> list[str]:
    """Return the first value of each cell."""
    first: dict[int, int] = {}
    for value, cell in bins.items():
        first.setdefault(cell, value)
    return [str(first[cell]) for cell in range(len(first))]


def _ranges(ranges: tuple[Range, ...], regret: ConstantsRegret | None) -> str:
    rows = [
        [factors.constant, factor_text(factors.low), factor_text(factors.high)]
        for factors in ranges
    ]
    text = "factors of each constant between which this configuration stays the best\n"
    text += format_table(["constant", "stays best from", "to"], rows)
    if regret is not None:
        text += f"\n{regret.words}"
    return text
