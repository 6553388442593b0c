"""Drawings of plans: Gantt charts, traces, charts of job configurations, and text."""

from typing import TYPE_CHECKING

from planner.model.loading import loader

if TYPE_CHECKING:
    from planner.view.gantt import save_gantt
    from planner.view.text import text_gantt
    from planner.view.trace import save_trace

__all__ = ["save_gantt", "save_trace", "text_gantt"]

__getattr__ = loader(
    __name__, {"gantt": ("save_gantt",), "text": ("text_gantt",), "trace": ("save_trace",)}
)
