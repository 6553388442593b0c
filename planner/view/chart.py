"""The title and the data of a picture of a plan, and the numbers on its axes."""

import re
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Generic, TypeVar

from planner.model.units import printable

MAX_TITLE = 236
"""Longer titles are shortened to two lines (characters)."""


View = TypeVar("View")


@dataclass(frozen=True, slots=True)
class Chart(Generic[View]):
    """The data of a picture, a timeline or one of `planner.solving.views`, with a title.

    `lower_bound_ns` is a proven bound on the objective of every plan.
    """

    title: str
    view: View
    lower_bound_ns: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", shorter_title(self.title))


def shorter_title(text: str) -> str:
    """Return a title of at most `MAX_TITLE` characters; it keeps the end with the cost."""
    return shortened(printable(text), MAX_TITLE)


def shortened(text: str, length: int) -> str:
    """Return the text without words in its middle if it is longer than `length`."""
    if len(text) <= length:
        return text
    start, end = text[: length // 2], text[-(length - length // 2 - 1) :]
    start, end = re.sub(r"\w+\Z", "", start) or start, re.sub(r"\A\w+", "", end) or end
    return f"{start.rstrip(' …')}…{end.lstrip(' …')}"


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round numbers from `low` to `high`, in steps of 1, 2, 2.5 or 5."""
    if not high > low:
        return [low]
    rough = (high - low) / max(count, 1)
    power = 10.0 ** floor(log10(rough))
    step = next(
        power * digit for digit in (1, 2, 2.5, 5, 10) if power * digit >= rough * (1 - 1e-9)
    )
    return [n * step for n in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def logarithmic_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of each decade; evenly spaced numbers for a short range."""
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    numbers = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    numbers = [tick for tick in numbers if low <= tick <= high]
    return numbers if len(numbers) >= 3 else ticks(low, high, 5)


def tick_text(value: float) -> str:
    """Return a tick's number without binary rounding errors."""
    return f"{value:,.10g}"
