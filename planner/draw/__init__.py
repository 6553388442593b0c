"""Drawings of plans: Gantt charts, traces, charts of job configurations, and text."""

from planner.draw.bars import BarChart, BarPanel, BarSeries, comparison_bars
from planner.draw.bars_figure import save_bars
from planner.draw.bars_text import text_bars
from planner.draw.chart import Chart
from planner.draw.drawing import BARS, GANTT, GROUPS, HOT_SPOTS, SCALING, Drawing
from planner.draw.gantt import save_gantt
from planner.draw.groups_panels import save_groups
from planner.draw.groups_text import text_groups
from planner.draw.hot_spots import text_hot_spots
from planner.draw.hot_spots_panels import save_hot_spots
from planner.draw.panels import save_scaling
from planner.draw.scaling_text import text_scaling
from planner.draw.table import format_table
from planner.draw.text import text_gantt
from planner.draw.trace import save_trace

__all__ = [
    "BARS",
    "GANTT",
    "GROUPS",
    "HOT_SPOTS",
    "SCALING",
    "BarChart",
    "BarPanel",
    "BarSeries",
    "Chart",
    "Drawing",
    "comparison_bars",
    "format_table",
    "save_bars",
    "save_gantt",
    "save_groups",
    "save_hot_spots",
    "save_scaling",
    "save_trace",
    "text_bars",
    "text_gantt",
    "text_groups",
    "text_hot_spots",
    "text_scaling",
]
