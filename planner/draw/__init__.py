"""Pictures of plans: Gantt charts, traces, configurations of jobs, text."""

from planner.draw.chart import Chart
from planner.draw.drawing import GANTT, SCALING, Drawing
from planner.draw.gantt import save_gantt
from planner.draw.panels import save_scaling
from planner.draw.scaling import LayerTime, Point, Range, Regret, Scaling, ScalingChart
from planner.draw.scaling_text import text_scaling
from planner.draw.table import format_table
from planner.draw.text import text_gantt
from planner.draw.trace import save_trace

__all__ = [
    "GANTT",
    "SCALING",
    "Chart",
    "Drawing",
    "LayerTime",
    "Point",
    "Range",
    "Regret",
    "Scaling",
    "ScalingChart",
    "format_table",
    "save_gantt",
    "save_scaling",
    "save_trace",
    "text_gantt",
    "text_scaling",
]
