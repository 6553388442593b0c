"""What every picture of a plan shows."""

from dataclasses import dataclass

from planner.timeline import Timeline

__all__ = ["Chart"]


@dataclass(frozen=True, slots=True)
class Chart:
    """A timeline with the words around it.

    Attributes
    ----------
    title : str
        What the plan is and what it costs.
    timeline : Timeline
        What happens when.
    lower_bound_ns : int or None
        Proven bound on the end of every plan, drawn beside it.
    """

    title: str
    timeline: Timeline
    lower_bound_ns: int | None = None
