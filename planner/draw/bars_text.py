"""Bar charts for a terminal: one row per bar, below the name of its group."""

from planner.draw.bars import BarChart, BarPanel
from planner.draw.chart import shortened
from planner.printing import printable

__all__ = ["text_bars"]

_MAX_NAME = 48
_MIN_COLUMNS = 10

Row = tuple[str, float | None, str, str]
"""Name, length, text, and the character that fills the bar."""


def text_bars(chart: BarChart, width: int = 80) -> str:
    """Return `chart` as text, `width` characters wide."""
    parts = [_panel(chart, panel, width) for panel in chart.panels]
    return "\n\n".join([chart.title, *parts])


def _panel(chart: BarChart, panel: BarPanel, width: int) -> str:
    rows: list[Row] = []
    several = any(_bars(panel, group) > 1 for group in range(len(chart.groups)))
    for place, group in enumerate(chart.groups):
        if several:
            note = f": {chart.notes[place]}" if chart.notes else ""
            rows.append((group + note, None, "", ""))
        for series in panel.series:
            value = series.values[place]
            if value is not None:
                name = f"  {series.name}" if several else group
                rows.append((name, *panel.bar(value, series.texts[place]), "█"))
    if panel.bound is not None:
        rows.append((panel.bound_text, panel.bound, "", "░"))
    names = [shortened(printable(row[0]), _MAX_NAME) for row in rows]
    named = [name for name, row in zip(names, rows, strict=True) if row[1] is not None]
    margin = max(map(len, named), default=0) + 2
    texts = max((len(row[2]) for row in rows), default=0)
    columns = max(_MIN_COLUMNS, width - margin - texts - 1)
    lines = [f"{panel.title}: {panel.axis}"]
    for name, (_, value, text, character) in zip(names, rows, strict=True):
        if value is None:
            lines.append(name)
            continue
        bar = character * round(value / panel.longest * columns)
        lines.append(f"{name:<{margin}}{bar:<{columns}} {text:>{texts}}".rstrip())
    return "\n".join(lines)


def _bars(panel: BarPanel, group: int) -> int:
    return sum(series.values[group] is not None for series in panel.series)
