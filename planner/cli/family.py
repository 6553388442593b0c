"""The interface between ``planner compare`` and the families of problems."""

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
"""Default time limit of each method (s)."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one family: name such as ``--workers``, default, and arguments for argparse."""

    name: str
    default: Any
    settings: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The name of the parsed value."""
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
    """A problem on which to compare methods."""

    problem: Any
    answer: Callable[[Result[Any, Any]], Head]  # JSON form
    about: tuple[str, ...]  # lines above the table
    name: str = ""  # of the model
    time_limit: float | None = None  # s for each method
    best: Callable[[Result[Any, Any]], Head] | None = None  # JSON form with costly parts
    methods: Sequence[str] | None = None  # default: the family's
    best_apart: bool = False  # list the best row's own answer too
    solve: Callable[..., Result[Any, Any]] | None = None  # default: the family's
    notes: Callable[[Comparison[Any, Any]], Sequence[str]] | None = None  # below the table
    warnings: tuple[str, ...] = ()  # about the inputs
    profile: Profile | None = None  # for provenance in answers
    doubts: Callable[[Result[Any, Any]], Sequence[str]] | None = None  # on a plan's costs

    def told(self, answer: Head, result: Result[Any, Any]) -> Head:
        """Return an answer with the warnings about its numbers."""
        own = () if self.doubts is None or result.plan is None else self.doubts(result)
        known = tuple(dict.fromkeys((*self.warnings, *own)))
        if self.profile is not None:
            return of_profile(answer, self.profile, known)
        return warned(answer, known)


@dataclass(frozen=True, slots=True)
class Profiled:
    """How a family builds problems from a profile and a network.

    `check` validates and converts the options in place; `part` returns the part of a profile that
    the family uses; `collective` names the measured collective that prices its transfers, if any;
    `beside` tells whether its plans count contention.
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

    `cells` returns a row's cells without the method, `ends` names the last columns (keys of
    `ENDS`). `bounding` is the method whose lower bound applies to every plan except plans below it,
    which have more freedom than that method. Without that bound each row uses its own. `asks` and
    `example` are texts of the help.
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
"""Last columns that many families share."""


def about(
    profile: Profile, summary: str, network: str, options: argparse.Namespace
) -> tuple[str, str, str]:
    """Return the lines above the table of a profile; a network file replaces `network`."""
    if options.network is not None:
        network = options.network.about
    return summary, provenance(profile), f"network: {network}"


def provenance(profile: Profile) -> str:
    """Return a line about the origin of a profile."""
    origin = profile.provenance
    about = ["profile", origin.kind, origin.date, origin.processor]
    samples = f", batch size {profile.batch_size}" if profile.batch_size else ""
    return printable(" ".join(filter(None, about)) + samples)


def warning_lines(warnings: Sequence[str]) -> list[str]:
    """Return warnings as lines to print."""
    return [f"warning: {printable(text)}" for text in warnings]


def lost(failed: Failures) -> str:
    """Return the numbers of failed servers, NICs and switches in words."""
    parts = (
        (len(failed.servers), "server", "servers"),
        (len(failed.nics), "NIC", "NICs"),
        (len(failed.switches), "switch", "switches"),
    )
    words = [f"{count} {name if count == 1 else names}" for count, name, names in parts if count]
    return " and ".join(words)


def percent(share: float | None) -> str:
    """Return a relative distance to a bound as text."""
    if share is None:
        return "?"
    return "<0.01%" if 0 < share < 5e-5 else f"{share:.2%}"
