"""What may be otherwise than a plan was made for, and what that makes of a graph and of a cost.

Problem: computation is never as fast as in the profile, start-ups and bandwidth are never those of
the network that was measured, ranks do not run abreast. A scenario says by how much. `SCENARIOS`
are those a plan's regret is asked for (`planner.solving.what_if`). An `Outlook` weighs some;
`measured` is the one that follows from the spreads of measured times.

`measured` is ten parts. In four times are the medians. In one each all computation is late by its
spread, the interquartile range; or the backward pass is, of the rank that is waited for; or its
first, middle or last third; or the forward pass. So the 90th percentile is the second longest of
the seven times. What varies in single layers is drawn by `benchmarks/robustness.py`.

A rank that begins late makes every plan later by the same, so that nothing is to be decided. A
scenario's `late` is about one that falls behind: when its backward pass ends it is so much of that
behind the others, and every gradient is late by its share. What is priced is that rank's iteration.

Times are rounded to whole nanoseconds. Complexity: O(ops), O(rows of a table). Source: own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import mul
from typing import Literal, get_args

from planner.errors import InvalidInputError, NotApplicableError
from planner.graphs import Graph, Phase
from planner.validation import exact, set_exact, shown

__all__ = [
    "LONGER",
    "MOST",
    "OBJECTIVES",
    "SCENARIOS",
    "Outlook",
    "Part",
    "Prospect",
    "Scenario",
    "graph_under",
    "later",
    "measured",
    "refuse_changes",
]

Part = Literal["all", "backward", "first", "middle", "last", "forward"]
"""What is late by its spread: everything, a pass, or a third of the backward pass."""

MOST = Fraction(201, 200)
"""How many times as long an iteration may last by the numbers as they are."""

OBJECTIVES = {"mean": None, "p90": Fraction(90)}
"""The percentile that counts, by name; None: the mean does."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is otherwise.

    Attributes
    ----------
    computation : Fraction
        What all times of computation are multiplied by; above 0.
    startup : Fraction
        What start-up costs are multiplied by.
    bandwidth : Fraction
        What the network carries, relative to what was thought; above 0.
    late : Fraction
        By how much of the backward pass the last rank is behind at its end.
    spread : Fraction
        How many times the spread of its measured times each op of `part` takes longer, before
        anything is multiplied.
    part : Part
        What does. Thirds are those of the backward pass in its stable topological order, by time.

    Raises
    ------
    InvalidInputError
        If a number is none, negative, or 0 where it may not be, or the part is unknown.
    """

    computation: Fraction = Fraction(1)
    startup: Fraction = Fraction(1)
    bandwidth: Fraction = Fraction(1)
    late: Fraction = Fraction(0)
    spread: Fraction = Fraction(0)
    part: Part = "all"

    def __post_init__(self) -> None:
        if self.part not in get_args(Part):
            known = ", ".join(get_args(Part))
            raise InvalidInputError("part", f"expected one of {known}, got {shown(self.part)}")
        set_exact(self, "spread")
        set_exact(self, "computation", positive=True)
        set_exact(self, "startup")
        set_exact(self, "bandwidth", positive=True)
        set_exact(self, "late")

    @property
    def backward(self) -> Fraction:
        """What times of the backward pass are multiplied by."""
        return self.computation * (1 + self.late)


@dataclass(frozen=True, slots=True)
class Outlook:
    """How likely scenarios are, and what of their times counts.

    Attributes
    ----------
    scenarios : tuple of (Scenario, Fraction)
        Scenarios, each with its weight, above 0; at least one.
    percentile : Fraction, optional
        The least time that is not exceeded in so many percent counts, by weight; above 0, at most
        100. By default the mean counts.

    Raises
    ------
    InvalidInputError
        If there is no scenario, a weight is none, or the percentile.
    """

    scenarios: tuple[tuple[Scenario, Fraction], ...]
    percentile: Fraction | None = None

    def __post_init__(self) -> None:
        if not self.scenarios:
            raise InvalidInputError("scenarios", "expected at least one")
        weighed = tuple(
            (scenario, exact(weight, f"scenarios[{place}].weight", positive=True))
            for place, (scenario, weight) in enumerate(self.scenarios)
        )
        object.__setattr__(self, "scenarios", weighed)
        if self.percentile is not None:
            set_exact(self, "percentile", positive=True)
            if self.percentile > 100:
                raise InvalidInputError("percentile", "expected at most 100")

    def of(self, times: Sequence[int]) -> Fraction:
        """Return what counts of the times in all scenarios; it never falls if a time rises."""
        weights = [weight for _, weight in self.scenarios]
        if self.percentile is None:
            return sum(map(mul, weights, times), Fraction(0)) / sum(weights)
        least, reached = self.percentile * sum(weights) / 100, Fraction(0)
        for time, weight in sorted(zip(times, weights, strict=True)):
            reached += weight
            if reached >= least:
                return Fraction(time)
        raise AssertionError  # all weights together are 100 percent


LONGER = (
    Scenario(computation=Fraction(6, 5)),
    Scenario(startup=Fraction(6, 5), bandwidth=Fraction(5, 6)),
)
"""Computation, or transfers, a fifth longer: plans for these bear more than those without."""

THIRDS = ("first", "middle", "last")
"""Of the backward pass."""

SCENARIOS = (
    Scenario(computation=Fraction(4, 5)),
    Scenario(computation=Fraction(6, 5)),
    Scenario(startup=Fraction(1, 2)),
    Scenario(startup=Fraction(2)),
    Scenario(bandwidth=Fraction(7, 10)),
    Scenario(bandwidth=Fraction(13, 10)),
    Scenario(late=Fraction(1, 10)),
)
"""One number otherwise at a time, by as much as it mostly is."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a plan for several scenarios costs in them.

    Attributes
    ----------
    value : Fraction
        The mean or the percentile of what an iteration lasts, in ns.
    bound : Fraction
        What no plan under its op order undercuts; at most `value`.
    usual_ns : int
        What the plan for the numbers as they are costs by these.
    usual_value : Fraction
        What that plan costs in the scenarios.
    """

    value: Fraction
    bound: Fraction
    usual_ns: int
    usual_value: Fraction


def measured(percentile: Fraction | None = None) -> Outlook:
    """Return the scenarios of measured spreads, and which percentile counts; None: the mean."""
    parts = (Scenario(spread=Fraction(1), part=part) for part in get_args(Part))
    return Outlook(
        ((Scenario(), Fraction(4)), *((scenario, Fraction(1)) for scenario in parts)), percentile
    )


def graph_under(graph: Graph, scenario: Scenario) -> Graph:
    """Return a graph with the durations of a scenario."""
    times: dict[int, int] = {}
    phases: tuple[Phase, ...] = ("backward", "forward")
    for phase in phases:
        order = graph.pass_order(phase)
        durations = [graph.ops[index].duration_ns for index in order]
        spreads = [graph.ops[index].spread_ns or 0 for index in order]
        times.update(zip(order, later(durations, spreads, phase, scenario), strict=True))
    if all(op.duration_ns == times[index] for index, op in enumerate(graph.ops)):
        return graph
    ops = (replace(op, duration_ns=times[index]) for index, op in enumerate(graph.ops))
    return Graph(tuple(ops), graph.parameters)


def later(
    durations: Sequence[int], spreads: Sequence[int], phase: Phase, scenario: Scenario
) -> list[int]:
    """Return what the computations of a pass last in a scenario.

    Parameters
    ----------
    durations, spreads : sequence of int
        Of each computation (ns), in the order in which they run.
    phase : {"forward", "backward"}
        The pass.
    scenario : Scenario
        What is otherwise.
    """
    factor = scenario.backward if phase == "backward" else scenario.computation
    moved, done, whole = [], 0, sum(durations)
    for duration, spread in zip(durations, spreads, strict=True):
        third = THIRDS[min(3 * (2 * done + duration) // (2 * whole), 2) if whole else 0]
        done += duration
        late = scenario.part in ("all", phase, third if phase == "backward" else "all")
        moved.append(round((duration + (scenario.spread * spread if late else 0)) * factor))
    return moved


def refuse_changes(scenario: Scenario, fields: Iterable[str], problem: str) -> None:
    """Raise an error if a scenario changes a field that says nothing about a family's problems.

    Parameters
    ----------
    scenario : Scenario
        The scenario.
    fields : iterable of str
        Its fields that have no meaning for the family.
    problem : str
        What the family lacks, such as ``"bml has no passes"``.

    Raises
    ------
    NotApplicableError
        Naming the first such field.
    """
    usual = Scenario()
    for name in fields:
        expected = getattr(usual, name)
        if getattr(scenario, name) != expected:
            raise NotApplicableError(name, f"expected {expected} or nothing: {problem}")
