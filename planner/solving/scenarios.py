"""Scenarios: perturbed computation and network parameters, applied to graphs and costs.

`SCENARIOS` are those of a plan's regret (`planner.solving.what_if`). A `ScenarioSet` weighs them.
`measured` returns the one that follows from the spreads of measured times; what it contains and
why: docs/how-it-works.md, "What measured times vary by".

A rank that begins late delays every plan by the same time, so nothing is to be decided.
`Scenario.late` is about a straggler, whose gradients are late by a growing share; its iteration is
priced.

Times are rounded to whole nanoseconds. Complexity: O(ops), O(rows of a table). Source: own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import mul
from typing import Literal, get_args

from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph, Phase
from planner.model.validation import exact, one_of, set_exact, shown

Part = Literal["all", "backward", "first", "middle", "last", "forward"]
"""Computation that is longer by its spread: all, a pass, or a third of the backward pass."""

MAX_LOSS = Fraction(201, 200)
"""Largest loss allowed with unperturbed numbers, as a factor on the iteration time."""

OBJECTIVES = {"mean": None, "p90": Fraction(90)}
"""Percentile that is minimised, by name; None is the mean."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A perturbation of computation and network; an invalid value is an InvalidInputError."""

    computation: Fraction = Fraction(1)  # factor on all computation times; above 0
    startup: Fraction = Fraction(1)  # factor on start-up costs
    bandwidth: Fraction = Fraction(1)  # factor on the bandwidth of the network; above 0
    # Straggler: the share of the backward pass by which the last rank is behind at its end.
    late: Fraction = Fraction(0)
    # How many times its spread each op of `part` takes longer, before any factor. Thirds are those
    # of the backward pass in its stable topological order, by time.
    spread: Fraction = Fraction(0)
    part: Part = "all"
    # Whether all channels of a graph carry one transfer at a time, as groups on one NIC do.
    shared: bool = False

    def __post_init__(self) -> None:
        one_of(self.part, get_args(Part), "part")
        shared: object = self.shared
        if not isinstance(shared, bool):
            raise InvalidInputError("shared", f"expected true or false, got {shown(shared)}")
        set_exact(self, "spread")
        set_exact(self, "computation", positive=True)
        set_exact(self, "startup")
        set_exact(self, "bandwidth", positive=True)
        set_exact(self, "late")

    @property
    def links(self) -> dict[str, Fraction]:
        """The factors of links, as `planner.model.network.scaled_network` takes them."""
        return {
            "startup": self.startup,
            "bandwidth": self.bandwidth,
            "computation": self.computation,
        }

    @property
    def backward(self) -> Fraction:
        """Factor on times of the backward pass."""
        return self.computation * (1 + self.late)


@dataclass(frozen=True, slots=True)
class ScenarioSet:
    """Weighted scenarios, and which statistic of their times is minimised."""

    scenarios: tuple[tuple[Scenario, Fraction], ...]  # with their weights, above 0; at least one
    percentile: Fraction | None = None  # above 0, at most 100; None: the mean

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
        """Return the mean or the percentile of times, one per scenario; monotone in each time."""
        weights = [weight for _, weight in self.scenarios]
        if self.percentile is None:
            return sum(map(mul, weights, times), Fraction(0)) / sum(weights)
        least, reached = self.percentile * sum(weights) / 100, Fraction(0)
        for time, weight in sorted(zip(times, weights, strict=True)):
            reached += weight
            if reached >= least:
                return Fraction(time)
        raise AssertionError  # all weights together are 100 percent


SLOWER = (
    Scenario(computation=Fraction(6, 5)),
    Scenario(startup=Fraction(6, 5), bandwidth=Fraction(5, 6)),
)
"""Computation a fifth longer, and transfers a fifth longer: a plan for both tolerates either."""

THIRDS = ("first", "middle", "last")
"""Thirds of the backward pass."""

SCENARIOS = (
    Scenario(computation=Fraction(4, 5)),
    Scenario(computation=Fraction(6, 5)),
    Scenario(startup=Fraction(1, 2)),
    Scenario(startup=Fraction(2)),
    Scenario(bandwidth=Fraction(7, 10)),
    Scenario(bandwidth=Fraction(13, 10)),
    Scenario(late=Fraction(1, 10)),
)
"""One parameter perturbed at a time, by a typical amount."""


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """Cost (ns) of a plan for several scenarios, and of the plan for unperturbed numbers."""

    value: Fraction  # mean or percentile
    bound: Fraction  # lower bound over all plans with its op order; at most `value`
    usual_ns: int  # cost of the usual plan with unperturbed numbers
    usual_value: Fraction  # mean or percentile of the usual plan


def measured(percentile: Fraction | None = None) -> ScenarioSet:
    """Return the scenarios of measured spreads; `percentile` None minimises the mean."""
    parts = (Scenario(spread=Fraction(1), part=part) for part in get_args(Part))
    return ScenarioSet(
        ((Scenario(), Fraction(4)), *((scenario, Fraction(1)) for scenario in parts)), percentile
    )


def scaled_graph(graph: Graph, scenario: Scenario) -> Graph:
    """Return the graph with the durations of a scenario."""
    times: dict[int, int] = {}
    phases: tuple[Phase, ...] = ("backward", "forward")
    for phase in phases:
        order = graph.pass_order(phase)
        durations = [graph.ops[index].duration_ns for index in order]
        spreads = [graph.ops[index].spread_ns or 0 for index in order]
        times.update(zip(order, scaled_times(durations, spreads, phase, scenario), strict=True))
    if all(op.duration_ns == times[index] for index, op in enumerate(graph.ops)):
        return graph
    ops = (replace(op, duration_ns=times[index]) for index, op in enumerate(graph.ops))
    return Graph(tuple(ops), graph.parameters)


def scaled_times(
    durations: Sequence[int], spreads: Sequence[int], phase: Phase, scenario: Scenario
) -> list[int]:
    """Return the computation times of a pass in a scenario (ns), in order of computation."""
    factor = scenario.backward if phase == "backward" else scenario.computation
    moved, done, whole = [], 0, sum(durations)
    for duration, spread in zip(durations, spreads, strict=True):
        third = THIRDS[min(3 * (2 * done + duration) // (2 * whole), 2) if whole else 0]
        done += duration
        late = scenario.part in ("all", phase, third if phase == "backward" else "all")
        moved.append(round((duration + (scenario.spread * spread if late else 0)) * factor))
    return moved


def refuse_changes(scenario: Scenario, fields: Iterable[str], problem: str) -> None:
    """Raise `NotApplicableError` if a scenario changes one of the fields, which mean nothing here.

    `problem` says what the family lacks, such as ``"bml has no passes"``.
    """
    usual = Scenario()
    for name in fields:
        expected = getattr(usual, name)
        if getattr(scenario, name) != expected:
            raise NotApplicableError(name, f"expected {expected} or nothing: {problem}")
