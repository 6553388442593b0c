"""What all families check of how they are asked: the method's name and the time limit."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from planner.deadline import Deadline
from planner.errors import InvalidInputError
from planner.validation import shown

__all__ = ["deadline_in", "known_method"]


def known_method(method: Any, known: Iterable[str]) -> str:
    """Return `method` if it is one of the `known` names.

    Raises
    ------
    InvalidInputError
        If it is not; the message lists them and names the closest one.
    """
    names = list(known)
    if isinstance(method, str) and method in names:
        return method
    close = get_close_matches(str(method), names, n=1)
    hint = f" (did you mean '{close[0]}'?)" if close else ""
    raise InvalidInputError(
        "method", f"expected one of {', '.join(names)}, got {shown(method)}{hint}"
    )


def deadline_in(time_limit: Any) -> Deadline:
    """Return the deadline a time limit in seconds sets; None sets none.

    Raises
    ------
    InvalidInputError
        If it is no number above 0.
    """
    number = isinstance(time_limit, int | float) and not isinstance(time_limit, bool)
    if time_limit is not None and not (number and time_limit > 0):
        raise InvalidInputError("time_limit_s", f"expected a number > 0, got {shown(time_limit)}")
    return Deadline(time_limit)
