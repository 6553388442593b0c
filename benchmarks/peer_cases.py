"""The joint plan beside the other methods, over many models and clusters.

Problem: how much does planning everything at once gain over what one would use instead, and how far
from the best can it be?

Method: every case, a model on a cluster, is planned by `auto` and by all other methods. What a
method gains is how many times as fast as with DDP an iteration is; how far it is from the best, how
many times the joint plan's bound its iteration lasts. Over many cases ratios are averaged
geometrically: twice as fast and half as fast make up for each other.

Guarantee: none beyond those of the methods. Complexity: that of the methods.
Source: own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp, fsum, log

from planner.families.iteration import JOINT, Evaluation, Plan, Problem, solve
from planner.families.iteration.measured import assumed_startups
from planner.model.clusters import Cluster
from planner.model.profiles import Profile
from planner.solving.compare import Comparison, compare
from planner.solving.result import Result

BASELINE = "ddp"
"""The method that speed-ups count from."""


@dataclass(frozen=True, slots=True)
class PeerCase:
    """Every method on one model and one cluster.

    Attributes
    ----------
    profile, cluster : str
        Their names.
    computation : Fraction
        What all computation times of the profile were multiplied by.
    comparison : Comparison
        The plans.
    assumed_startups : bool
        Whether the cluster says that its start-ups are assumed.
    """

    profile: str
    cluster: str
    computation: Fraction
    comparison: Comparison[Plan, Evaluation]
    assumed_startups: bool = False

    def result(self, method: str) -> Result[Plan, Evaluation] | None:
        """Return a method's result; None if the method does not apply."""
        for row in self.comparison.rows:
            if row.method == method:
                return row
        return None

    def time_ns(self, method: str) -> int | None:
        """Return how long an iteration takes by a method; None if it has no plan."""
        result = self.result(method)
        return None if result is None else result.objective_ns

    @property
    def bound_ns(self) -> int | None:
        """What no plan undercuts under the joint plan's op order; None without a joint plan."""
        result = self.result(JOINT)
        return None if result is None else result.lower_bound_ns

    def speedup(self, method: str) -> float | None:
        """Return how many times as fast as with DDP an iteration is; None if nobody can say."""
        return _ratio(self.time_ns(BASELINE), self.time_ns(method))

    def over_bound(self, method: str) -> float | None:
        """Return how many times the joint plan's bound an iteration lasts; None without both."""
        return _ratio(self.time_ns(method), self.bound_ns)

    def reason(self, method: str) -> str:
        """Return why a method has no plan; empty if it has one."""
        result = self.result(method)
        if result is not None:
            return result.infeasibility.reason if result.infeasibility else ""
        return dict(self.comparison.left_out).get(method, "")


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ratios of several cases.

    Attributes
    ----------
    values : tuple of float
        One a case, above 0; at least one.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Geometric mean."""
        return exp(fsum(map(log, self.values)) / len(self.values))

    @property
    def least(self) -> float:
        """Smallest ratio."""
        return min(self.values)

    @property
    def most(self) -> float:
        """Largest ratio."""
        return max(self.values)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a method does over several cases.

    Attributes
    ----------
    method : str
        The method.
    cases : int
        Cases in which it has a plan; both spreads are over these only.
    speedup : Ratios or None
        How many times as fast as with DDP an iteration is.
    over_bound : Ratios or None
        How many times the joint plan's bound an iteration lasts.
    """

    method: str
    cases: int
    speedup: Ratios | None
    over_bound: Ratios | None


def planned(
    profile: Profile, cluster: Cluster, scale: Fraction, methods: Sequence[str]
) -> PeerCase:
    """Plan one case by every method.

    Parameters
    ----------
    profile : Profile
        The model.
    cluster : Cluster
        Where it shall run.
    scale : Fraction
        What its computation times are multiplied by.
    methods : sequence of str
        Some of `planner.iteration.METHODS`.
    """
    problem = Problem.from_profile(profile, cluster, computation=scale)
    comparison = compare(problem, dict.fromkeys((JOINT, BASELINE, *methods)), solve=solve)
    return PeerCase(profile.name, cluster.name, scale, comparison, assumed_startups(cluster))


def standings(cases: Sequence[PeerCase], methods: Iterable[str]) -> tuple[Standing, ...]:
    """Return how each method does over all cases, in the order of `methods`."""
    return tuple(
        Standing(
            method,
            sum(case.time_ns(method) is not None for case in cases),
            _spread(case.speedup(method) for case in cases),
            _spread(case.over_bound(method) for case in cases),
        )
        for method in methods
    )


def _spread(values: Iterable[float | None]) -> Ratios | None:
    known = tuple(value for value in values if value is not None)
    return Ratios(known) if known else None


def _ratio(above: int | None, below: int | None) -> float | None:
    return above / below if above and below else None
