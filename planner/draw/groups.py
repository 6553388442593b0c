"""What is drawn of group scheduling: overhead and time of a group against its size."""

from dataclasses import dataclass

from planner.draw.chart import shorter_title
from planner.views import Groups

__all__ = ["GroupsChart"]


@dataclass(frozen=True, slots=True)
class GroupsChart:
    """A choice of a group size with the words around it.

    Attributes
    ----------
    title : str
        What the plan is and what it costs.
    groups : Groups
        The sizes.
    lower_bound_ns : int or None
        Proven bound on the time of a group.
    """

    title: str
    groups: Groups
    lower_bound_ns: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", shorter_title(self.title))
