"""Drawings of plans: Gantt charts, traces, charts of job configurations, and text."""

from typing import TYPE_CHECKING

from planner.model.loading import loader

if TYPE_CHECKING:
    from planner.view.chart import Chart
    from planner.view.drawing import DRAWINGS, GANTT, Drawing, drawing_of, plan_chart
    from planner.view.gantt import save_gantt
    from planner.view.table import format_table
    from planner.view.text import text_gantt
    from planner.view.trace import save_trace

__all__ = [
    "DRAWINGS",
    "GANTT",
    "Chart",
    "Drawing",
    "drawing_of",
    "format_table",
    "plan_chart",
    "save_gantt",
    "save_trace",
    "text_gantt",
]

__getattr__ = loader(
    __name__,
    {
        "chart": ("Chart",),
        "drawing": ("DRAWINGS", "GANTT", "Drawing", "drawing_of", "plan_chart"),
        "gantt": ("save_gantt",),
        "table": ("format_table",),
        "text": ("text_gantt",),
        "trace": ("save_trace",),
    },
)
