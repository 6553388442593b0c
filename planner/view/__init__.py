"""Drawings of plans: Gantt charts, traces, charts of job configurations, and text."""

from planner.view.bars import BarChart, BarPanel, BarSeries, comparison_bars, save_bars
from planner.view.chart import Chart
from planner.view.drawing import BARS, GANTT, GROUPS, HOT_SPOTS, SCALING, Drawing
from planner.view.gantt import save_gantt
from planner.view.groups_panels import save_groups
from planner.view.hot_spots import save_hot_spots, text_hot_spots
from planner.view.panels import save_scaling
from planner.view.table import format_table
from planner.view.text import text_bars, text_gantt, text_groups, text_scaling
from planner.view.trace import save_trace

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
