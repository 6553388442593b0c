"""What ``planner compare`` needs to know of a family of problems."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec

from planner.comparison import Comparison
from planner.profiles import Profile
from planner.results import Result

__all__ = ["Family", "Option", "percent"]


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one family only.

    Attributes
    ----------
    name : str
        Such as ``--workers``.
    default : object
        Its value if it is not given.
    settings : mapping
        The rest of what argparse is told.
    """

    name: str
    default: Any
    settings: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Its name among the parsed options."""
        return self.name.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Family:
    """How a family's methods are compared.

    Attributes
    ----------
    methods : sequence of str
        Methods compared by default.
    options : tuple of Option
        Options of this family only.
    check : callable
        Checks and converts these options in place.
    subject : callable
        Returns what is planned for: the part of a profile the family looks at.
    problem : callable
        Returns the problem of a subject, a start-up time (ns) and a rate (bytes a second).
    compare : callable
        Compares methods on a problem.
    answer : callable
        Returns the JSON form of one result.
    summary, network : callable
        Return a line about the problem, and one about the network.
    table : callable
        Returns the header and the rows of the table.
    """

    methods: Sequence[str]
    options: tuple[Option, ...]
    check: Callable[[argparse.Namespace], None]
    subject: Callable[[Profile, argparse.Namespace], Any]
    problem: Callable[[Any, int, Fraction, argparse.Namespace], Any]
    compare: Callable[..., Comparison[Any, Any]]
    answer: Callable[[Any, Any, Result[Any]], msgspec.Struct]
    summary: Callable[[Profile, Any], str]
    network: Callable[[argparse.Namespace], str]
    table: Callable[[Comparison[Any, Any]], tuple[Sequence[str], list[tuple[str, ...]]]]


def percent(share: float | None) -> str:
    """Return a distance to a bound as a person reads it."""
    if share is None:
        return "?"
    return "<0.01%" if 0 < share < 5e-5 else f"{share:.2%}"
