"""What ``planner compare`` needs to know of a family of problems."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.cli.common import REGRET_HELP
from planner.comparison import Comparison
from planner.jsonio.heads import Head, of_profile, warned
from planner.printing import printable
from planner.profiles import Profile
from planner.results import Result
from planner.targets import FSDP2, PLANNER, TARGET_NAMES
from planner.topologies import Failures
from planner.units import format_ns

__all__ = [
    "DEFAULT_SECONDS",
    "FOR",
    "REGRET",
    "ComparedProblem",
    "Family",
    "Option",
    "Profiled",
    "about",
    "lost",
    "percent",
    "provenance",
    "warning_lines",
]

DEFAULT_SECONDS = 10.0
"""Time limit of a method, if nobody says otherwise."""


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


REGRET = Option("--regret", False, {"action": "store_true", "help": REGRET_HELP})

FOR = Option(
    "--for",
    PLANNER,
    {
        "choices": TARGET_NAMES,
        "help": "whose rules plans keep to, such as whole parameters and a barrier before the "
        f"forward pass (ibatch: {FSDP2.name}, its pulls); default: planner, whose runtime has none",
    },
)
"""Options of several families."""


@dataclass(frozen=True, slots=True)
class ComparedProblem:
    """One problem to compare methods on.

    Attributes
    ----------
    problem : object
        The problem.
    answer : callable
        Returns the JSON form of a result.
    about : tuple of str
        Lines that say what the problem is.
    name : str
        The model's, if it has one.
    time_limit : float, optional
        Seconds for each method, if whoever asks says nothing else; a request may have its own.
    best : callable, optional
        Returns the JSON form of the best result, with parts that take extra time.
    methods : sequence of str, optional
        Methods compared by default, if not those of the family.
    best_apart : bool
        Whether that says something else than the answer of the best row, which then stands too.
    solve : callable, optional
        Solves this problem, if not the family's `solve`.
    notes : callable, optional
        Returns lines to print below the table of a comparison.
    warnings : tuple of str
        Why the numbers it is made of may be off.
    profile : Profile, optional
        The profile among these numbers; answers say how it was measured.
    doubts : callable, optional
        Returns what of a result's own costs was not measured.
    """

    problem: Any
    answer: Callable[[Result[Any, Any]], Head]
    about: tuple[str, ...]
    name: str = ""
    time_limit: float | None = None
    best: Callable[[Result[Any, Any]], Head] | None = None
    methods: Sequence[str] | None = None
    best_apart: bool = False
    solve: Callable[..., Result[Any, Any]] | None = None
    notes: Callable[[Comparison[Any, Any]], Sequence[str]] | None = None
    warnings: tuple[str, ...] = ()
    profile: Profile | None = None
    doubts: Callable[[Result[Any, Any]], Sequence[str]] | None = None

    def told(self, answer: Head, result: Result[Any, Any]) -> Head:
        """Return an answer that says why its numbers may be off."""
        own = () if self.doubts is None or result.plan is None else self.doubts(result)
        known = tuple(dict.fromkeys((*self.warnings, *own)))
        if self.profile is not None:
            return of_profile(answer, self.profile, known)
        return warned(answer, known)


@dataclass(frozen=True, slots=True)
class Profiled:
    """How a family's problems are made of a profile and a network.

    Attributes
    ----------
    options : tuple of Option
        Options of this family only.
    check : callable
        Checks and converts these options in place.
    part : callable
        Returns the part of a profile that the family looks at.
    problem : callable
        Returns the problem of that part on a network.
    compared : callable
        Returns what is compared: of a profile, its part and the problem.
    collective : callable
        Returns which measured collective costs what its transfers do, if one does.
    beside : bool
        Whether its plans count what transfers and computation take from each other.
    """

    options: tuple[Option, ...]
    check: Callable[[argparse.Namespace], None]
    part: Callable[[Profile, argparse.Namespace], Any]
    problem: Callable[[Any, Any, argparse.Namespace], Any]
    compared: Callable[[Profile, Any, Any, argparse.Namespace], ComparedProblem]
    collective: Callable[[argparse.Namespace], str | None]
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """How a family's methods are compared.

    Attributes
    ----------
    methods : sequence of str
        Methods compared by default.
    solve : callable
        Solves a problem: called with it, and with `method` and `time_limit` by name.
    columns : sequence of str
        Header of the table, from the method on, but for `ends`.
    cells : callable
        Returns what stands below them of a result with a plan, but for the method.
    requested : callable
        Returns what is compared for a request.
    profiled : Profiled, optional
        How problems are made of a profile, if they can be.
    ends : sequence of str
        The last columns, keys of `ENDS`.
    bounding : str
        The method whose bound every plan is held against, but plans below it: such a one has more
        freedom than that method. Without one, and without its bound, a row has its own.
    asks, example : str
        The question, and a command that asks it: for the help.
    """

    methods: Sequence[str]
    solve: Callable[..., Result[Any, Any]]
    columns: Sequence[str]
    cells: Callable[[Result[Any, Any]], tuple[str, ...]]
    requested: Callable[[Any], ComparedProblem]
    profiled: Profiled | None = None
    ends: Sequence[str] = ("above bound", "status", "run time")
    bounding: str = ""
    asks: str = ""
    example: str = ""

    def table(
        self, comparison: Comparison[Any, Any]
    ) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the header and the rows of the table."""
        bounds = {row.method: row.lower_bound_ns for row in comparison.rows}
        bound, none = bounds.get(self.bounding), ("–",) * (len(self.columns) - 1)
        rows = [
            (
                row.method,
                *(none if row.plan is None else self.cells(row)),
                *(ENDS[end](row, bound) for end in self.ends),
            )
            for row in comparison.rows
        ]
        return (*self.columns, *self.ends), rows


def _above(result: Result[Any, Any], bound_ns: int | None) -> str:
    if result.plan is None:
        return "–"
    if bound_ns and result.objective_ns is not None and result.objective_ns >= bound_ns:
        return percent(result.objective_ns / bound_ns - 1)
    return percent(result.gap)


ENDS: Mapping[str, Callable[[Result[Any, Any], int | None], str]] = {
    "above bound": _above,
    "status": lambda result, _: result.status,
    "run time": lambda result, _: format_ns(round(result.runtime_s * 1e9)),
}
"""Columns that tables of many families end with."""


def about(
    profile: Profile, summary: str, network: str, options: argparse.Namespace
) -> tuple[str, str, str]:
    """Return what is said above the table of a profile, whose network may be that of a file."""
    if options.network is not None:
        network = options.network.about
    return summary, provenance(profile), f"network: {network}"


def provenance(profile: Profile) -> str:
    """Return a line about where a profile comes from."""
    origin = profile.provenance
    about = ["profile", origin.kind, origin.date, origin.processor]
    samples = f", batch size {profile.batch_size}" if profile.batch_size else ""
    return printable(" ".join(filter(None, about)) + samples)


def warning_lines(warnings: Sequence[str]) -> list[str]:
    """Return lines that repeat why a profile's times may be off."""
    return [f"warning: {printable(text)}" for text in warnings]


def lost(failed: Failures) -> str:
    """Return how many servers, NICs and switches have failed, in words."""
    parts = (
        (len(failed.servers), "server", "servers"),
        (len(failed.nics), "NIC", "NICs"),
        (len(failed.switches), "switch", "switches"),
    )
    words = [f"{count} {name if count == 1 else names}" for count, name, names in parts if count]
    return " and ".join(words)


def percent(share: float | None) -> str:
    """Return a distance to a bound as a person reads it."""
    if share is None:
        return "?"
    return "<0.01%" if 0 < share < 5e-5 else f"{share:.2%}"
