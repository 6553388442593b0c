"""The picture of each problem's plans."""

from collections.abc import Mapping
from typing import Any

from planner.jsonio import PROBLEMS
from planner.jsonio.heads import Head
from planner.view.drawing import BARS, GANTT, GROUPS, HOT_SPOTS, SCALING, Drawing

DRAWINGS: Mapping[str, Drawing] = {
    "ibatch": GANTT,
    "caramel": GANTT,
    "yan": SCALING,
    "bml": BARS,
    "drizzle": GROUPS,
    "bigdl": HOT_SPOTS,
    "fsdp": GANTT,
    "iteration": GANTT,
    "overlap": GANTT,
}
"""The drawing of each problem's plans."""


def drawing_of(problem: str) -> Drawing:
    """Return the drawing of a problem's plans; of a family that was registered a Gantt chart."""
    return DRAWINGS.get(problem, GANTT)


def plan_chart(answer: Head, view: Any, name: str = "") -> Any:
    """Return the chart of an answer and its view (from `planner.jsonio.decode_answer`).

    `name` is the model's, for the title.
    """
    headline = PROBLEMS[answer.problem].headline(answer)
    title = f"{name}: {headline[:1].lower()}{headline[1:]}" if name else headline
    return drawing_of(answer.problem).chart(title, view, answer.lower_bound_ns)
