"""What every picture of a plan shows."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from planner.printing import printable

__all__ = ["Chart", "shortened", "shorter_title"]

MAX_TITLE = 236
"""Longer titles are shortened: two lines."""


View = TypeVar("View")


@dataclass(frozen=True, slots=True)
class Chart(Generic[View]):
    """What there is to show of a plan, with the words around it.

    Attributes
    ----------
    title : str
        What the plan is and what it costs.
    view : View
        What is drawn: a timeline, or one of `planner.views`.
    lower_bound_ns : int or None
        Proven bound on what every plan costs, drawn beside it.
    """

    title: str
    view: View
    lower_bound_ns: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", shorter_title(self.title))


def shorter_title(text: str) -> str:
    """Return a title that can be shown: what the plan costs stands at its end."""
    text = printable(text)
    if len(text) > MAX_TITLE:
        text = f"{text[: MAX_TITLE // 3]}…{text[-2 * MAX_TITLE // 3 + 1 :]}"
    return text


def shortened(text: str, length: int) -> str:
    """Return `text` with its middle left out if it is longer than `length`."""
    if len(text) <= length:
        return text
    start, end = text[: length // 2], text[-(length - length // 2 - 1) :]
    return f"{start.rstrip(' …')}…{end.lstrip(' …')}"
