"""Which picture shows the plans of which problem, and what that picture is made of."""

from collections.abc import Mapping
from typing import Any

from planner.draw.drawing import BARS, GANTT, GROUPS, HOT_SPOTS, SCALING, Drawing
from planner.jsonio import PROBLEMS
from planner.jsonio.heads import Head

__all__ = ["DRAWINGS", "plan_chart"]

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
"""How the plans of each problem are drawn."""


def plan_chart(answer: Head, view: Any, name: str = "") -> Any:
    """Return what `DRAWINGS` draw of an answer.

    Parameters
    ----------
    answer : Head
        The answer.
    view : object
        What there is to draw of it, as `planner.jsonio.decode_answer` returns it.
    name : str
        The model it is about, if it has a name.
    """
    headline = PROBLEMS[answer.problem].headline(answer)
    title = f"{name}: {headline[:1].lower()}{headline[1:]}" if name else headline
    return DRAWINGS[answer.problem].chart(title, view, answer.lower_bound_ns)
