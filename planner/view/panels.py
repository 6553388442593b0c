"""What is drawn of plans that are no timelines: the panels of each family."""

from collections.abc import Sequence

from planner.model.units import format_ns, printable, unit_of
from planner.solving.views import (
    PHASES,
    Compared,
    Groups,
    LayerTime,
    Point,
    Ranking,
    Scaling,
    epoch_text,
    epoch_unit,
    share_text,
)
from planner.view.bars import BarRow, Bars, Panels, Part, row_of
from planner.view.chart import Chart
from planner.view.style import COLOURS, GREY, KINDS

_MAX_ROWS = 24


def above_bound(time_ns: int, bound_ns: int | None) -> str:
    """Return the distance of a time to the bound: 3.21%, and from twice on 12.3×."""
    if time_ns == bound_ns:
        return "the lower bound"
    if not bound_ns:
        return ""
    longer = slowdown_text(time_ns, bound_ns)
    return f"{longer} the bound" if longer.endswith("×") else f"{longer} above the bound"


def slowdown_text(time_ns: int, best_ns: int) -> str:
    """Return the slowdown against the best time: 0%, 3.21%, and from twice on 12.3×."""
    if time_ns == best_ns or not best_ns:
        return "0%"
    ratio = time_ns / best_ns
    if ratio >= 2:
        return f"{ratio:.4g}×"
    return "<0.01%" if ratio < 1.00005 else f"{ratio - 1:.2%}"


# ---
# BML: time and switches of each algorithm, the fastest first.

_TOPOLOGIES = {"bcube": Part("BCube", COLOURS[0]), "fattree": Part("Fat-Tree", COLOURS[1])}


def compared(chart: Chart[tuple[Compared, ...]]) -> tuple[tuple[Bars, Bars], ...]:
    """Return the times and the switches; the chart's bound is one on times on a BCube."""
    rows = sorted(chart.view, key=lambda row: (row.time_ns, row.switches, row.name))
    places, bound = [list(_TOPOLOGIES).index(row.topology) for row in rows], chart.lower_bound_ns
    unit, scale = unit_of(rows[-1].time_ns)
    pairs = list(zip(rows, places, strict=True))
    times = Bars(
        "time of one synchronisation",
        f"time ({unit})",
        tuple(
            row_of(row.name, row.time_ns / scale, format_ns(row.time_ns), at) for row, at in pairs
        ),
        tuple(_TOPOLOGIES.values()),
        None if bound is None else bound / scale,
        "" if bound is None else f"lower bound on BCube {format_ns(bound)}",
    )
    switches = Bars(
        "cost of the network",
        "switches",
        tuple(row_of(row.name, row.switches, _count(row.switches), at) for row, at in pairs),
        tuple(_TOPOLOGIES.values()),
    )
    return ((times, switches),)


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**9 else f"{number:.3g}"


# ---
# BigDL: the time of each method.


def ranked(chart: Chart[Ranking]) -> tuple[tuple[Bars]]:
    """Return the times."""
    ranking, bound = chart.view, chart.lower_bound_ns
    unit, scale = unit_of(ranking.rows[-1][1])
    rows = []
    for name, time in ranking.rows:
        text = f"{format_ns(time)}  {above_bound(time, bound)}".rstrip()
        rows.append(row_of(name, time / scale, text, int(name != ranking.method)))
    times = Bars(
        "every way to synchronise",
        f"time of one synchronisation ({unit})",
        tuple(rows),
        bound=None if bound is None else bound / scale,
        bound_text="" if bound is None else f"lower bound {format_ns(bound)}",
    )
    return ((times,),)


# ---
# Drizzle: overhead and time of a group by its size, with both limits.


def groups(chart: Chart[Groups]) -> tuple[tuple[Bars, Bars], ...]:
    """Return the overheads and the times; of many sizes those around the chosen one."""
    view = chart.view
    start = max(view.points.index(view.chosen) - _MAX_ROWS // 2, 0)
    points = view.points[max(min(start, len(view.points) - _MAX_ROWS), 0) :][:_MAX_ROWS]
    parts = (Part("chosen", COLOURS[0]), Part("", GREY, "▒"))
    longest = view.max_group_ns
    unit, scale = unit_of(points[-1].group_time_ns if longest is None else longest)
    shares, times = [], []
    for point in points:
        size, part = f"{point.group_size:,}", int(point != view.chosen)
        breaks = view.breaks(point)
        share = share_text(point.overhead) + (f", {breaks}" if breaks else "")
        shares.append(row_of(size, 100 * point.overhead, share, part))
        time = point.group_time_ns
        times.append(row_of(size, time / scale, format_ns(time), part))
    most = 100 * view.max_overhead
    return (
        (
            Bars(
                "scheduling, by iterations scheduled at once",
                "overhead (% of an iteration)",
                tuple(shares),
                parts,
                most,
                f"limit {share_text(view.max_overhead)}",
            ),
            Bars(
                "how long the job goes without a decision",
                f"time of a group ({unit})",
                tuple(times),
                parts,
                None if longest is None else longest / scale,
                "" if longest is None else f"limit {format_ns(longest)}",
            ),
        ),
    )


# ---
# Yan: where the time of an epoch goes, by layer, and other configurations.

_PHASES = tuple(
    Part(name, colour, letter)
    for name, colour, letter in zip(
        PHASES,
        (KINDS["forward"], KINDS["backward"], COLOURS[3], KINDS["all_reduce"], KINDS["pull"]),
        "fbucw",
        strict=True,
    )
)
_CONFIGURATIONS = "workers × replicas + servers"


def scaling(chart: Chart[Scaling]) -> Panels:
    """Return the layers, the ranking, and what else is known."""
    view = chart.view
    layers = grouped(view.layers, _MAX_ROWS)
    unit, scale = epoch_unit(max(layer.total_ns for layer in layers) // 2)
    whole = sum(layer.total_ns for layer in layers) or 1
    rows = tuple(
        BarRow(
            layer.name,
            tuple(time / scale for time in layer.phases_ns),
            f"{epoch_text(layer.total_ns)} {layer.total_ns / whole:6.1%}",
        )
        for layer in layers
    )
    axis = f"time in an epoch ({unit})"
    panels = [[Bars("where the time of an epoch goes, by layer", axis, rows, _PHASES)]]
    first = view.ranking[:_MAX_ROWS]
    more = "the best of each"
    if len(first) < len(view.ranking):
        more = f"the first {len(first)} of {len(view.ranking)}"
    panels.append([_configurations(f"{_CONFIGURATIONS}, {more}", first, view.best)])
    if view.front:
        each = -(-len(view.front) // _MAX_ROWS)
        some = view.front[(len(view.front) - 1) % each :: each]  # the last one is among them
        title = f"the best with so many machines: {_CONFIGURATIONS}"
        panels[-1].append(_configurations(title, some, view.best, machines=True))
    return panels


def _configurations(
    title: str, points: Sequence[Point], best: Point, *, machines: bool = False
) -> Bars:
    unit, scale = epoch_unit(max(point.epoch_ns for point in points))
    rows = []
    for point in points:
        slower = slowdown_text(point.epoch_ns, best.epoch_ns)
        sign = "" if slower.endswith("×") or slower.startswith("<") else "+"
        text = epoch_text(point.epoch_ns) + (f" ({sign}{slower})" if slower != "0%" else "")
        name = f"{point.machines:,}: {point.label}" if machines else point.label
        rows.append(row_of(name, point.epoch_ns / scale, text, int(point != best)))
    return Bars(title, f"time of an epoch ({unit})", tuple(rows))


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
