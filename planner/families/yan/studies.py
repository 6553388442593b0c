"""Studies of the best configuration: by the number of machines, and by errors of the constants.

The least time of an epoch for every number of machines is the Pareto front of the two. For one
number after the other, bounds (`planner.families.yan.layerwise`) on configurations that need all
machines cut nearly all triples; the others are solved, most promising first, with shared caches.
Each point is the exact least time under the canonical mapping. Complexity: N ln N bounds O(L·K·C)
for C choices a layer, times some numbers of servers; then 2 to 3 dynamic programs for each number
of machines. See docs/yan.md, "Why the front of machines is fast". Source: own; the concavity is
that of Eisner and Severance, JACM 1976.
"""

import sys
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import chain, count
from math import isqrt

import numpy as np

from planner.families.yan.configuration import Configuration, Ranked, Triple
from planner.families.yan.memory import infeasibility
from planner.families.yan.model import estimate
from planner.families.yan.problem import DEPENDS, Problem, refuse_different, scaled
from planner.families.yan.search import Engine, bounded, rank
from planner.model.errors import InvalidInputError
from planner.solving.deadline import NEVER, Deadline

MAX_TIME = sys.float_info.max / 4
"""Bound where no configuration exists; finite, because bounds are subtracted."""


def pareto_front(
    problem: Problem,
    *,
    deadline: Deadline = NEVER,
) -> tuple[Ranked, ...]:
    """Return the best configuration for every number of machines that beats all smaller numbers.

    Parameters
    ----------
    problem : Problem
        The problem; its `fixed` and `top` are ignored.
    deadline : Deadline
        When to stop: the front then ends early, but is valid up to there.

    Returns
    -------
    tuple of Ranked
        Fewest machines first: strictly more machines, strictly less time. Empty if nothing fits.

    Raises
    ------
    NotApplicableError
        If machines differ.
    """
    refuse_different(problem, "a front", DEPENDS)
    if infeasibility(problem) is not None:
        return ()
    candidates = _Candidates(problem)
    front: list[Ranked] = []
    for machines in range(2, problem.machines + 1):
        if deadline.passed:
            break
        best = candidates.best(machines, front[-1] if front else None)
        if best is not None:
            front.append(best)
    return tuple(front)


def _interpolated(known: dict[int, float], servers: int) -> float:
    """Return a bound for a number of servers, by the bounds known for others; 0 if unknown."""
    fewer = max((count for count in known if count <= servers), default=0)
    more = min((count for count in known if count >= servers), default=0)
    if not fewer or not more:
        return 0.0
    if fewer == more:
        return known[fewer]
    # reading time is linear in 1 / servers
    share = (1 / servers - 1 / more) / (1 / fewer - 1 / more)
    return known[more] + share * (known[fewer] - known[more])


class _Candidates:
    """All numbers of workers and replicas, with their bounds."""

    def __init__(self, problem: Problem) -> None:
        self.engine = Engine(problem)
        self.layerwise = self.engine.layerwise
        self.error = self.layerwise.tables.error
        space = self.engine.space
        self.fewest = space.fewest_servers
        triples: list[Triple] = []
        lowest: list[float] = []
        for bound, triple in chain.from_iterable(bounded(self.layerwise, space)):
            last = max(self.fewest, triple.workers if problem.read_model != "max" else 0)
            triples.append(triple._replace(servers=min(last, triple.servers)))
            lowest.append(bound)
        self.triples = triples
        """With as many servers as can be of use."""
        self.used = np.array(
            [triple.workers * triple.replicas for triple in triples], dtype=np.int64
        )
        self.last = np.array([triple.servers for triple in triples], dtype=np.int64)
        self.lowest = np.array(lowest)
        self.bounds: list[dict[int, float]] = [{} for _ in triples]
        """By number of servers, for configurations with a segment on every worker."""

    def best(self, machines: int, fewer: Ranked | None) -> Ranked | None:
        """Return the best configuration with exactly `machines` machines if it beats `fewer`."""
        limit = float("inf") if fewer is None else float(fewer.epoch) * (1 + 4 * self.error)
        servers = machines - self.used
        usable = (servers >= self.fewest) & (servers <= self.last) & (self.lowest < limit)
        heap = [(float(self.lowest[place]), 0, place) for place in np.flatnonzero(usable).tolist()]
        heapify(heap)  # bound, stage, candidate
        solved_triples: list[tuple[float, Triple]] = []
        while heap and heap[0][0] < limit:
            bound, stage, place = heappop(heap)
            triple = self.triples[place]._replace(servers=int(servers[place]))
            if stage == 0:
                heappush(heap, (max(bound, self._between(place, triple)), 1, place))
            elif stage == 1:
                heappush(heap, (max(bound, self._bound(place, triple)), 2, place))
            else:
                time = self.engine.solve(triple)
                if time is not None:
                    self._add(place, triple, time)
                    solved_triples.append((time, triple))
                    limit = min(limit, time * (1 + 4 * self.error))
        ranking = self.engine.ranked(triple for time, triple in solved_triples if time < limit)
        for _, solved_triple in solved_triples:
            self.engine.forget(solved_triple)
        if ranking and (fewer is None or ranking[0].epoch < fewer.epoch):
            return min(ranking, key=rank)
        return None

    def _add(self, place: int, triple: Triple, bound: float) -> None:
        known = self.bounds[place]
        known[triple.servers] = max(known.get(triple.servers, 0.0), bound)

    def _needs_all(self, triple: Triple) -> bool:
        """Return whether a worker without a segment would be redundant."""
        return triple.servers < triple.workers or self.engine.problem.read_model == "max"

    def _between(self, place: int, triple: Triple) -> float:
        """Return a bound on a triple, interpolated between other numbers of servers."""
        if not self._needs_all(triple):
            return 0.0
        known = self.bounds[place]
        if not known:
            self._bound(place, self.triples[place])
            self._bound(place, triple)
        return _interpolated(known, triple.servers)

    def _bound(self, place: int, triple: Triple) -> float:
        """Return a bound on configurations that need all machines of a triple."""
        through, anything = self.layerwise.coarse(triple)
        bound = MAX_TIME
        for options, times in zip(self.layerwise.options, through, strict=True):
            full = times[options.segments[: len(times)] == triple.workers]
            if full.size:
                bound = min(bound, float(full.min()))
        self._add(place, triple, bound)
        return bound if self._needs_all(triple) else anything


# ---
# Sensitivity: for each constant, within which factors does a configuration stay the best?
#
# Method: from crossing to crossing of two cost curves, Newton's method for parametric problems. The
# configuration's own price cuts every search. Guarantee: at an end nothing is better, and at most
# `TOLERANCE` beyond it the named configuration is; under the canonical mapping. Limits, proof and
# measured times: docs/yan.md, "Why sensitivity intervals are right". Complexity: some 5 searches
# for each of up to 12 ends. Source: own; Eisner and Severance, JACM 1976.

FARTHEST = 1_000
"""Factors are examined from 1 / FARTHEST to FARTHEST."""

TOLERANCE = Fraction(1, 10**6)
"""Relative distance from an end within which another configuration is better."""

DIGITS = 9
"""Significant digits of a factor."""

CONSTANTS: tuple[str, ...] = (
    "muladd_ns",
    "activation_ns",
    "error_ns",
    "latency_ns",
    "nic_bits_per_s",
    "interference",
)


@dataclass(frozen=True, slots=True)
class FactorRange:
    """Factors of a constant from `low` to `high` between which a configuration stays the best.

    All of `latency_ns` is scaled at once; of `interference` the part above 1. An end is None if the
    configuration is the best as far as examined; `low_beaten_by` and `high_beaten_by` are the
    better configurations just beyond the ends.
    """

    constant: str
    low: Fraction | None
    high: Fraction | None
    low_beaten_by: Configuration | None = None
    high_beaten_by: Configuration | None = None


def sensitivity(
    problem: Problem, configuration: Configuration, *, deadline: Deadline = NEVER
) -> tuple[FactorRange, ...]:
    """Return the factors of each constant within which a configuration stays the best.

    Parameters
    ----------
    problem : Problem
        The network, the machines and the constants; its `fixed` is ignored.
    configuration : Configuration
        The best one, as method `exact` finds it.
    deadline : Deadline
        When to give up.

    Returns
    -------
    tuple of FactorRange
        None for `interference` if no number of threads slows down computation.

    Raises
    ------
    NotApplicableError
        If machines differ.
    InvalidPlanError
        If `configuration` is not valid for the problem.
    InvalidInputError
        If `configuration` is not the best one.
    TimeUpError
        At the deadline.
    """
    refuse_different(problem, "sensitivity", DEPENDS)
    study = _Study(problem, configuration, deadline)
    study.check()
    names = CONSTANTS
    if max(problem.constants.interference[: problem.threads]) <= 1:
        names = names[:-1]
    intervals = []
    for name in names:
        low, below = study.end(name, upwards=False)
        high, above = study.end(name, upwards=True)
        intervals.append(FactorRange(name, low, high, below, above))
    return tuple(intervals)


@dataclass(frozen=True)
class _Study:
    """One configuration, under other constants."""

    problem: Problem
    configuration: Configuration
    deadline: Deadline

    def check(self) -> None:
        """Raise InvalidInputError unless the configuration is the best."""
        better = self._better(self.problem)
        if better is not None:
            workers, replicas, servers = better.configuration.triple
            raise InvalidInputError(
                "configuration",
                f"expected the best one, but with {workers} workers, {replicas} replicas and "
                f"{servers} servers an epoch takes {float(better.epoch):.6g} ns, in this one "
                f"{float(estimate(self.problem, self.configuration).epoch):.6g} ns",
            )

    def _better(self, problem: Problem) -> Ranked | None:
        """Return the best configuration if it beats the studied one."""
        self.deadline.check()
        price = estimate(problem, self.configuration).epoch
        engine = Engine(problem)
        below = float(price) * (1 + 4 * engine.tables.error)
        result = engine.search(1, Deadline(None), below)
        ranking = engine.ranked(solution.triple for solution in result.solutions)
        return ranking[0] if ranking and ranking[0].epoch < price else None

    def end(self, name: str, *, upwards: bool) -> tuple[Fraction | None, Configuration | None]:
        """Return the last good factor of a constant, and the better configuration beyond."""
        factor, beaten_by = self._farthest(name, upwards=upwards), None
        while factor != 1:
            better = self._better(scaled(self.problem, name, factor))
            if better is None:
                break
            beaten_by = better.configuration
            factor = self._crossing(name, beaten_by, factor)
        return (None if beaten_by is None else factor), beaten_by

    def _farthest(self, name: str, *, upwards: bool) -> Fraction:
        """Return the factor to start from, within the constant's own range; 1 if none."""
        far = FARTHEST
        while far > 1:
            factor = Fraction(far) if upwards else Fraction(1, far)
            try:  # leave room for decimals
                scaled(self.problem, name, factor - Fraction(1, 10 ** (3 * DIGITS)))
            except InvalidInputError:
                far //= 10
            else:
                return factor
        return Fraction(1)

    def _crossing(self, name: str, rival: Configuration, far: Fraction) -> Fraction:
        """Return a factor at which `rival`, better at `far`, is not yet better.

        It is at most `TOLERANCE` farther.
        """

        def lead(factor: Fraction) -> Fraction:
            problem = scaled(self.problem, name, factor)
            mine = estimate(problem, self.configuration).epoch
            return estimate(problem, rival).epoch - mine

        near, near_lead, far_lead = Fraction(1), lead(Fraction(1)), lead(far)
        for turn in count():
            if abs(far - near) <= TOLERANCE * near:
                break
            if turn % 3 == 0:  # where the two costs are equal, if they are affine
                share = near_lead / (near_lead - far_lead)
                factor = _line(near, far, share, inverse=name == "nic_bits_per_s")
            elif turn % 3 == 1:  # the end, if it is close
                factor = near * (1 + TOLERANCE if near < far else 1 - TOLERANCE)
            else:  # about the geometric mean
                unit = 10 ** (4 * DIGITS)
                factor = Fraction(isqrt(int(near * far * unit)), isqrt(unit))
            if not min(near, far) < factor < max(near, far):
                continue
            lead_here = lead(factor)
            if lead_here >= 0:
                near, near_lead = factor, lead_here
            else:
                far, far_lead = factor, lead_here
        return near


def _line(near: Fraction, far: Fraction, share: Fraction, *, inverse: bool) -> Fraction:
    """Return the factor at which two affine costs are equal, rounded towards `near`."""
    if inverse:
        crossing = 1 / (1 / near + (1 / far - 1 / near) * share)
    else:
        crossing = near + (far - near) * share
    context = Context(DIGITS, ROUND_FLOOR if near < far else ROUND_CEILING)
    return Fraction(context.divide(Decimal(crossing.numerator), Decimal(crossing.denominator)))
