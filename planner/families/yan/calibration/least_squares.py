"""Least-squares fit of the model's constants to measured epochs.

Problem: find C_muladd, C_act, C_err, one factor for all of C_ncost(H), and 1/C_nbw, all above 0,
with the least sum of squared relative errors. Interference and bits per number are fixed.
Method: a price is the maximum of linear functions of these constants; trust-region least squares on
the functions known so far, which exact prices extend. Constants that the data do not determine are
held. See docs/yan.md, "How constants are measured and fitted".

Guarantee: never worse than the start times any allowed factor; a local minimum is possible. The
order of the measurements has no influence.
Complexity: about ten rounds of O(measurements) prices, and five more for each new choice of slowest
segments. Source: own; the model is that of Yan et al. (KDD'15).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.families.yan.configuration import Configuration
from planner.families.yan.model import cut, priced
from planner.families.yan.problem import Constants, Problem
from planner.families.yan.segments import Segment
from planner.model.validation import MAX_VALUE

FITTED = ("muladd_ns", "activation_ns", "error_ns", "latency_ns", "nic_bits_per_s")

ROUNDS = 50
"""Most descent rounds of a fit."""

STILL = 1e-9
"""Relative decrease of the squared errors below which the descent stops."""

EXACT = 1e-12
"""Relative error below which a price counts as exact."""

SAME = 1e-9
"""Relative error of prices that always counts as agreement, however exact the others are."""

WORTH = 2
"""Allowed increase of the squares for a held constant, in residual variances (Mallows' Cp)."""

FLOOR = 1e-6
"""Initial least share of a constant in the epoch it matters most for, which keeps it above 0."""

INDEPENDENT = 1e-6
"""Relative size from which a singular value of the effects counts towards the rank."""

STEP = Fraction(1, 2**80)
"""Relative step of exact differences, far below the distance to the next slowest segments."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MeasuredEpoch:
    """A configuration that was run, with its mapping, and the measured time of an epoch."""

    configuration: Configuration
    epoch_ns: int


def _with(start: Constants, values: Sequence[Fraction]) -> Constants:
    """Return `start` with fitted values: three times, a latency factor, nanoseconds per bit."""
    muladd, activation, error, factor, per_bit = values
    return replace(
        start,
        muladd_ns=muladd,
        activation_ns=activation,
        error_ns=error,
        latency_ns=tuple(factor * latency for latency in start.latency_ns),
        nic_bits_per_s=10**9 / per_bit,
    )


def _values(start: Constants) -> tuple[Fraction, ...]:
    """Return the values for which `_with` returns `start`."""
    per_bit = 10**9 / start.nic_bits_per_s
    return start.muladd_ns, start.activation_ns, start.error_ns, Fraction(1), per_bit


class Row:
    """A measurement, and the gradients of its price found so far."""

    def __init__(self, problem: Problem, measurement: MeasuredEpoch) -> None:
        self.problem = problem
        self.configuration = measurement.configuration
        self.measured = measurement.epoch_ns
        self.gradients: list[Array] = []
        self.order = (self.measured, repr(self.configuration))

    def price(self, constants: Constants) -> Fraction:
        """Return the time of the epoch with these constants (ns)."""
        problem = replace(self.problem, constants=constants)
        return priced(problem, self.configuration, self._segments).epoch

    @cached_property
    def _segments(self) -> list[list[Segment]]:
        return cut(self.problem, self.configuration)

    def at(self, values: Sequence[float]) -> float:
        """Return the price, and add its gradient to the known ones."""
        price = float(self._at([Fraction(value) for value in values]))
        for known in self.gradients:
            if abs(float(known @ np.array(values)) - price) <= 1e-13 * price:
                return price
        self.gradients.append(self._differences([Fraction(value) for value in values]))
        return price

    def _at(self, values: Sequence[Fraction]) -> Fraction:
        return self.price(_with(self.problem.constants, values))

    def _differences(self, values: list[Fraction]) -> Array:
        """Return the gradient at `values`, or next to them if it does not exist there.

        It does not exist where two different segments are equally slow; then the differences to the
        right sum to more than the price.
        """
        for attempt in range(4):
            beside = [
                value * (1 + attempt * Fraction(1, 2**40 + 2**38 * place))
                for place, value in enumerate(values)
            ]
            price = self._at(beside)
            slopes = []
            for place, value in enumerate(beside):
                moved = [*beside[:place], value * (1 + STEP), *beside[place + 1 :]]
                slopes.append((self._at(moved) - price) / (value * STEP))
            if sum(map(Fraction.__mul__, slopes, beside)) == price:
                break
        return np.array([float(slope) for slope in slopes])


class Solution(NamedTuple):
    """Constants in the form `_with` takes; indices of the held ones and of those at the floor."""

    values: Array
    held: frozenset[int]
    at_floor: frozenset[int]
    rounds: int


class _Point(NamedTuple):
    """Constants in units of a `_Search`, and their sum of squared errors."""

    values: Array
    error: float


def solve(problem: Problem, measurements: Sequence[MeasuredEpoch]) -> Solution:
    """Return the constants fitted to some measurements."""
    search = _Search(problem, measurements)
    point = search.fitted(search.scaled, frozenset())
    nothing = len(search.rows) * SAME**2
    worth = WORTH * search.variance(point) + nothing
    held: frozenset[int] = frozenset()
    for column in np.argsort(search.shares, kind="stable").tolist():
        more = held | {column}
        limit = min(point.error + worth, max(search.scaled.error, nothing))
        refitted = search.fitted(point, more, limit)
        if refitted.error <= limit:
            held, point = more, refitted
    at_floor = frozenset(np.flatnonzero(point.values <= 2 * search.low).tolist()) - held
    return Solution(point.values * search.unit, held, at_floor, search.rounds)


class _Search:
    """Fit in normalised units: 1 unit of a constant costs one epoch.

    This is the measured epoch in which the constant matters most, priced at the start. The price is
    the maximum over the known gradients, which `effects` has relative to the measurements.
    """

    def __init__(self, problem: Problem, measurements: Sequence[MeasuredEpoch]) -> None:
        # Sorted, so that the order of the measurements does not affect rounding.
        self.rows = sorted(
            (Row(problem, measurement) for measurement in measurements), key=lambda row: row.order
        )
        self.measured = np.array([float(row.measured) for row in self.rows])
        self.rounds = 0
        self.unit = np.ones(len(FITTED))
        start = np.array([float(value) for value in _values(problem.constants)])
        ratios = self.price(start)
        effects = self.effects()[:, 0]
        self.unit = 1 / effects.max(axis=0)
        self.start = start / self.unit
        self.shares = (effects * start).mean(axis=0)
        least, most = (limit / self.unit for limit in _limits(problem.constants))
        factor = ratios.sum() / np.square(ratios).sum()
        values = np.clip(factor * self.start, least, most)
        self.scaled = _Point(values, self.error(values))
        self.low = np.maximum(least, np.minimum(FLOOR, values / 2))
        self.high = most

    def price(self, values: Array) -> Array:
        """Return the prices of all measurements, relative to the measured times."""
        exact = (values * self.unit).tolist()
        relative: Array = np.array([row.at(exact) for row in self.rows]) / self.measured
        return relative

    def error(self, values: Array) -> float:
        return float(np.square(self.price(values) - 1).sum())

    def effects(self) -> Array:
        """Return the known gradients; shape (rows, gradients, constants)."""
        most = max(len(row.gradients) for row in self.rows)
        padded = [
            row.gradients + row.gradients[:1] * (most - len(row.gradients)) for row in self.rows
        ]
        effects: Array = np.array(padded) * self.unit / self.measured[:, None, None]
        return effects

    def variance(self, point: _Point) -> float:
        """Return the residual variance; 0 if the data are too few to leave any."""
        effects = _active(self.effects(), point.values)
        known = int(np.linalg.matrix_rank(effects, tol=INDEPENDENT * np.linalg.norm(effects, 2)))
        return point.error / (len(self.rows) - known) if len(self.rows) > known else 0.0

    def fitted(self, begin: _Point, held: frozenset[int], limit: float = np.inf) -> _Point:
        """Descend from a point; constants in `held` keep their starting values.

        The error is infinite if it seems to end above `limit`.
        """
        free = np.array([place for place in range(len(FITTED)) if place not in held], dtype=int)
        if not len(free):
            return _Point(self.start, self.error(self.start))
        best = begin
        if held:
            values = self.start.copy()
            values[free] = begin.values[free]
            best = _Point(values, np.inf)
        for _ in range(ROUNDS):
            wanted = self._promising(best.values, free)
            little = STILL * best.error + len(self.rows) * EXACT**2 if best.error < np.inf else 0
            if wanted.error > limit or best.error - wanted.error <= little:
                break
            self.rounds += 1
            error = self.error(wanted.values)
            if error < best.error:
                best = _Point(wanted.values, error)
        return best

    def _promising(self, values: Array, free: NDArray[np.intp]) -> _Point:
        """Return the best fit under the known gradients, found by descent from `values`."""
        from scipy.optimize import least_squares, lsq_linear

        effects = self.effects()

        def full(free_values: Array) -> Array:
            result = values.copy()
            result[free] = free_values
            return result

        def residuals(free_values: Array) -> Array:
            left_over: Array = (effects @ full(free_values)).max(axis=1) - 1
            return left_over

        def jacobian(free_values: Array) -> Array:
            return _active(effects, full(free_values))[:, free]

        bounds = (self.low[free], self.high[free])
        begin = np.clip(values[free], *bounds)
        steps = least_squares(
            residuals, begin, jacobian, bounds, xtol=EXACT, ftol=EXACT, gtol=EXACT, x_scale="jac"
        ).x
        # The trust region ends slightly inside the bounds, and is slow where constants are
        # correlated.
        rest = residuals(steps) - jacobian(steps) @ steps
        jump = lsq_linear(jacobian(steps), -rest, bounds, method="bvls").x
        candidates = [np.clip(candidate, *bounds) for candidate in (steps, jump)]
        return min(
            (
                _Point(full(candidate), float(np.square(residuals(candidate)).sum()))
                for candidate in candidates
            ),
            key=lambda point: point.error,
        )


def _active(effects: Array, values: Array) -> Array:
    """Return the gradients that attain the prices at `values`."""
    chosen: Array = effects[np.arange(len(effects)), (effects @ values).argmax(axis=1)]
    return chosen


def _limits(start: Constants) -> tuple[Array, Array]:
    """Return the least and the largest values that `_with` can turn into valid constants."""
    most = MAX_VALUE * (1 - 1e-6)  # leaves room for exact differences
    slowest = float(max(start.latency_ns))
    return (
        np.array([0, 0, 0, 0, 10**9 / most]),
        np.array([most, most, most, most / slowest, np.inf]),
    )


def constants_of(start: Constants, solution: Solution) -> Constants:
    """Return the fitted constants with nine digits, and the others unchanged."""
    before = _values(start)
    values = [
        before[place]
        if place in solution.held or value == float(before[place])
        else Fraction(value)
        for place, value in enumerate(solution.values.tolist())
    ]
    exact = _with(start, values)

    def kept(fitted: Fraction, initial: Fraction) -> Fraction:
        if fitted == initial:
            return initial
        return min(Fraction(f"{float(fitted):.9g}"), Fraction(MAX_VALUE))

    fitted: dict[str, Any] = {
        name: kept(getattr(exact, name), getattr(start, name))
        for name in FITTED
        if name != "latency_ns"
    }
    latency = tuple(map(kept, exact.latency_ns, start.latency_ns))
    return replace(exact, latency_ns=latency, **fitted)
