"""What is drawn of group scheduling: overhead and time of a group against its size."""

from dataclasses import dataclass

from planner.draw.chart import shorter_title

__all__ = ["GroupPoint", "Groups", "GroupsChart", "share_text"]


@dataclass(frozen=True, slots=True)
class GroupPoint:
    """A group size with what it costs.

    Attributes
    ----------
    group_size : int
        Iterations scheduled at once.
    overhead : float
        Share of scheduling in the time of an iteration.
    group_time_ns : int
        Time of a group.
    """

    group_size: int
    overhead: float
    group_time_ns: int


@dataclass(frozen=True, slots=True)
class Groups:
    """A chosen group size among others, and the limits.

    Attributes
    ----------
    points : tuple of GroupPoint
        Sizes in order, the chosen one among them.
    chosen : GroupPoint
        The plan.
    max_overhead : float
        Limit on the overhead.
    max_group_ns : int or None
        Limit on the time of a group, if there is one.
    """

    points: tuple[GroupPoint, ...]
    chosen: GroupPoint
    max_overhead: float
    max_group_ns: int | None = None

    def breaks(self, point: GroupPoint) -> str:
        """Return which limit a size breaks, in words; nothing if it breaks none."""
        if point.overhead > self.max_overhead:
            return "too much overhead"
        if self.max_group_ns is not None and point.group_time_ns > self.max_group_ns:
            return "too long a group"
        return ""


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


def share_text(share: float) -> str:
    """Return a share as a person reads it."""
    return f"{share:.2%}" if share >= 0.001 or not share else f"{100 * share:.2g}%"
