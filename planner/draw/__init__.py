"""Pictures of plans: Gantt charts, traces, text."""

from planner.draw.chart import Chart
from planner.draw.gantt import save_gantt
from planner.draw.table import format_table
from planner.draw.text import text_gantt
from planner.draw.trace import save_trace

__all__ = ["Chart", "format_table", "save_gantt", "save_trace", "text_gantt"]
