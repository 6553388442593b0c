"""What may be otherwise than a plan was made for, and what that makes of a graph and of a cost.

Problem: computation is never as fast as in the profile, start-ups and bandwidth are never those of
the network that was measured, ranks do not run abreast. A scenario says by how much, in four
numbers. `SCENARIOS` are those a plan's regret is asked for (`planner.regret`). An `Outlook` weighs
some.

A rank that begins late makes every plan later by the same, so that nothing is to be decided. A
scenario's `late` is about one that falls behind: when its backward pass ends it is so much of that
behind the others, and every gradient is late by its share. What is priced is that rank's iteration.

Times are rounded to whole nanoseconds. Complexity: O(ops), O(rows of a table). Source: own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import mul

from planner.costs import AffineCost, DepthCost, TableCost
from planner.errors import InvalidInputError
from planner.graphs import Graph
from planner.validation import exact, set_exact

__all__ = ["SCENARIOS", "Outlook", "Scenario", "cost_under", "graph_under"]


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

    Raises
    ------
    InvalidInputError
        If a number is none, negative, or 0 where it may not be.
    """

    computation: Fraction = Fraction(1)
    startup: Fraction = Fraction(1)
    bandwidth: Fraction = Fraction(1)
    late: Fraction = Fraction(0)

    def __post_init__(self) -> None:
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


def graph_under(graph: Graph, scenario: Scenario) -> Graph:
    """Return a graph with the durations of a scenario."""
    if scenario.computation == 1 == scenario.backward:
        return graph
    factors = {"forward": scenario.computation, "backward": scenario.backward}
    ops = (replace(op, duration_ns=round(op.duration_ns * factors[op.phase])) for op in graph.ops)
    return Graph(tuple(ops), graph.parameters)


def cost_under(
    cost: AffineCost | TableCost | DepthCost, scenario: Scenario
) -> AffineCost | TableCost | DepthCost:
    """Return what transfers cost in a scenario.

    Of a table what the smallest transfer takes is start-up, and the rest is bandwidth.
    """
    if isinstance(cost, DepthCost):
        return DepthCost(
            tuple((depth, _at_depth(priced, scenario)) for depth, priced in cost.by_depth)
        )
    return _at_depth(cost, scenario)


def _at_depth(cost: AffineCost | TableCost, scenario: Scenario) -> AffineCost | TableCost:
    startup, bandwidth = scenario.startup, scenario.bandwidth
    if isinstance(cost, AffineCost):
        return AffineCost(round(cost.startup_ns * startup), cost.ns_per_byte / bandwidth)
    least = cost.startup_ns
    return TableCost(
        tuple(
            (size, round(min(time, least) * startup + max(time - least, 0) / bandwidth))
            for size, time in cost.points
        )
    )
