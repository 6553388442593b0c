"""The panels in which plans without a timeline are drawn, for each family."""

from collections.abc import Callable, Sequence

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
from planner.view.bars import USUAL, BarRow, Bars, Panels, Part, row_of
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


def _times(
    title: str,
    what: str,
    rows: Sequence[tuple[str, int, str, int]],
    parts: tuple[Part, ...] = USUAL,
    bound: int | None = None,
    named: str = "lower bound",
    units: Callable[[int], tuple[str, int]] = unit_of,
) -> Bars:
    """Return a panel of times: each row's name, its time (ns), the text behind, and its part."""
    unit, scale = units(max(*(time for _, time, *_ in rows), bound or 0))
    return Bars(
        title,
        f"{what} ({unit})",
        tuple(row_of(name, time / scale, text, part) for name, time, text, part in rows),
        parts,
        None if bound is None else bound / scale,
        "" if bound is None else f"{named} {format_ns(bound)}",
    )


# ---
# BML: time and switches of each algorithm, the fastest first.

_TOPOLOGIES = {"bcube": Part("BCube", COLOURS[0]), "fattree": Part("Fat-Tree", COLOURS[1])}


def compared(chart: Chart[tuple[Compared, ...]]) -> Panels:
    """Return the times and the switches; the chart's bound is one on times on a BCube."""
    rows = sorted(chart.view, key=lambda row: (row.time_ns, row.switches, row.name))
    parts, places = tuple(_TOPOLOGIES.values()), [*_TOPOLOGIES]
    times, switches = [], []
    for row in rows:
        part, count = places.index(row.topology), row.switches
        times.append((row.name, row.time_ns, format_ns(row.time_ns), part))
        shown = f"{count:,}" if count < 10**9 else f"{count:.3g}"
        switches.append(row_of(row.name, count, shown, part))
    bound, named = chart.lower_bound_ns, "lower bound on BCube"
    what = "time of one synchronisation"
    return (
        (
            _times(what, "time", times, parts, bound, named),
            Bars("cost of the network", "switches", tuple(switches), parts),
        ),
    )


# ---
# BigDL: the time of each method.


def ranked(chart: Chart[Ranking]) -> Panels:
    """Return the times."""
    ranking, bound = chart.view, chart.lower_bound_ns
    rows = []
    for name, time in ranking.rows:
        text = f"{format_ns(time)}  {above_bound(time, bound)}".rstrip()
        rows.append((name, time, text, int(name != ranking.method)))
    what = "time of one synchronisation"
    return ((_times("every way to synchronise", what, rows, bound=bound),),)


# ---
# Drizzle: overhead and time of a group by its size, with both limits.


def groups(chart: Chart[Groups]) -> Panels:
    """Return the overheads and the times; if there are many sizes, those around the chosen size."""
    view = chart.view
    start = max(view.points.index(view.chosen) - _MAX_ROWS // 2, 0)
    points = view.points[max(min(start, len(view.points) - _MAX_ROWS), 0) :][:_MAX_ROWS]
    parts = (Part("chosen", COLOURS[0]), Part("", GREY, "▒"))
    shares, times = [], []
    for point in points:
        size, part = f"{point.group_size:,}", int(point != view.chosen)
        breaks, time = view.breaks(point), point.group_time_ns
        share = share_text(point.overhead) + (f", {breaks}" if breaks else "")
        shares.append(row_of(size, 100 * point.overhead, share, part))
        times.append((size, time, format_ns(time), part))
    most, asleep = view.max_overhead, "how long the job goes without a decision"
    return (
        (
            Bars(
                "scheduling, by iterations scheduled at once",
                "overhead (% of an iteration)",
                tuple(shares),
                parts,
                100 * most,
                f"limit {share_text(most)}",
            ),
            _times(asleep, "time of a group", times, parts, view.max_group_ns, "limit"),
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
    """Return the panels of the layers, the ranking, and the best configurations by machines."""
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
        title = f"the best for each number of machines: {_CONFIGURATIONS}"
        panels[-1].append(_configurations(title, some, view.best, machines=True))
    return panels


def _configurations(
    title: str, points: Sequence[Point], best: Point, *, machines: bool = False
) -> Bars:
    rows = []
    for point in points:
        slower = slowdown_text(point.epoch_ns, best.epoch_ns)
        sign = "" if slower.endswith("×") or slower.startswith("<") else "+"
        text = epoch_text(point.epoch_ns) + (f" ({sign}{slower})" if slower != "0%" else "")
        name = f"{point.machines:,}: {point.label}" if machines else point.label
        rows.append((name, point.epoch_ns, text, int(point != best)))
    return _times(title, "time of an epoch", rows, units=epoch_unit)


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
