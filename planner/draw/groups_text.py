"""Group sizes for a terminal: a bar of overhead and the time of a group per size."""

from planner.draw.chart import Chart
from planner.draw.table import format_table
from planner.units import format_ns
from planner.views import Groups, share_text

__all__ = ["text_groups"]

_MAX_ROWS = 24
_FIXED = 66
"""Characters of a row without its bar."""


def text_groups(chart: Chart[Groups], width: int = 80) -> str:
    """Return `chart` as text, `width` characters wide."""
    groups = chart.view
    columns = max(10, width - _FIXED)
    longest = max(groups.max_overhead, *(point.overhead for point in groups.points)) or 1
    rows: list[tuple[str, ...]] = [
        (
            _bar(point.overhead, groups.max_overhead, longest, columns),
            str(point.group_size),
            share_text(point.overhead),
            format_ns(point.group_time_ns),
            "<- chosen" if point == groups.chosen else groups.breaks(point),
        )
        for point in groups.points
    ]
    limits = f"limits: overhead {share_text(groups.max_overhead)}"
    if groups.max_group_ns is not None:
        limits += f", time of a group {format_ns(groups.max_group_ns)}"
    header = ("overhead (| limit)".ljust(columns), "group size", "share", "time of a group", "")
    return "\n\n".join([chart.title, format_table(header, _cut(groups, rows)), limits])


def _bar(share: float, limit: float, longest: float, columns: int) -> str:
    """Return a bar with a mark at the limit."""
    filled = round(share / longest * columns)
    mark = min(int(limit / longest * columns), columns - 1)
    cells = ["█" if column < filled else " " for column in range(columns)]
    cells[mark] = "|"
    return "".join(cells)


def _cut(groups: Groups, rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the rows, or those around the chosen one if there are too many."""
    if len(rows) <= _MAX_ROWS:
        return rows
    start = groups.points.index(groups.chosen) - _MAX_ROWS // 2
    start = min(max(start, 0), len(rows) - _MAX_ROWS)
    stop = start + _MAX_ROWS
    before, after = (
        [(f"… {left_out} more …", "", "", "", "")] if left_out else []
        for left_out in (start, len(rows) - stop)
    )
    return [*before, *rows[start:stop], *after]
