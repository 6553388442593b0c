"""Parsers of option values, one for each form."""

import re
from argparse import ArgumentTypeError
from fractions import Fraction

from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube
from planner.model.units import parse_time
from planner.model.validation import shown


def parse_bcube(text: str) -> BCube:
    """Return the topology of ``3,2`` or ``3x2``."""
    ends = re.fullmatch(r"([0-9]{1,20})[,x]([0-9]{1,20})", text)
    if not ends:
        raise InvalidInputError("--bcube", f"expected n,k such as 3,2, got {shown(text)}")
    try:
        return BCube(int(ends[1]), int(ends[2]))
    except InvalidInputError as error:
        raise InvalidInputError("--bcube", f"{error.path}: {error.message}") from None


def parse_names(text: str, option: str) -> tuple[str, ...]:
    """Return the items of a list such as ``exact,greedy`` without repetitions."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise InvalidInputError(option, f"expected a list such as A,B, got {shown(text)}")
    return names


def parse_count(text: str, option: str) -> int:
    """Return a whole number of at most nine digits."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise InvalidInputError(option, f"expected a whole number such as 4, got {shown(text)}")
    return int(text)


def parse_number(text: str, option: str, *, positive: bool = False) -> Fraction:
    """Return an exact non-negative number such as 0.02 or 1/50."""
    expected = f"expected a number {'>' if positive else '>='} 0 such as 0.02 or 1/50"
    if len(text) > 40 or "e" in text.lower():
        raise InvalidInputError(option, f"{expected}, got {shown(text)}")
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise InvalidInputError(option, f"{expected}, got {shown(text)}") from None
    if value < 0 or (positive and not value):
        raise InvalidInputError(option, f"{expected}, got {shown(text)}")
    return value


def seconds(text: str) -> float:
    """Return a duration (s) from a number of seconds or a time such as ``500ms``.

    Raises ArgumentTypeError, to which argparse adds the option.
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return parse_time(text, "") / 1e9
    except InvalidInputError:
        expected = "expected seconds, or a time such as 500ms"
        raise ArgumentTypeError(f"{expected}, got {shown(text)}") from None
