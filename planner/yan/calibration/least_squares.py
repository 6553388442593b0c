"""The constants of the model, fitted to epochs that were measured.

Problem: given measured epochs of several configurations, find ``C_muladd``, ``C_act``, ``C_err``,
one factor for all of ``C_ncost(H)``, and ``1 / C_nbw``, all above 0, with the least sum of squared
relative errors. Interference and the sizes in bits stay what they are.

Method: in these five the model is homogeneous and linear but for the choice of the slowest
segments: a price is the largest of several linear functions, its gradients. From the start times
the best common factor, what is known of these functions is fitted by least squares in a trust
region with bounds; exact prices there make more of them known (by exact differences), and so on
until what is known promises nothing better. Then each constant, the one with the smallest share of
the time first, is set back to its start, and the others are fitted once more: it stays there, held,
unless the sum of squares rises by more than `WORTH` times the variance of what the first fit
left (Mallows' Cp; Technometrics 15, 1973). So constants are held which the measurements cannot
tell from others, or not from noise.

Guarantee: what is fitted is never worse, in the sum of squares, than the start times any factor
that keeps the constants within what a problem takes. It is as a rule the least there is before
constants are held, but a local minimum is possible: the problem is not convex. The order of the
measurements has no influence on the constants.

Complexity: O(rounds · measurements) prices, rounds being about ten, and five more for each
new choice of slowest segments of a measurement.

Source: own; the model is that of Yan et al. (KDD'15).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.validation import MAX_VALUE
from planner.yan.configuration import Configuration
from planner.yan.model import cut, priced
from planner.yan.problem import Constants, Problem
from planner.yan.segments import Segment

__all__ = ["FITTED", "MeasuredEpoch", "Row", "constants_of", "solve"]


FITTED = ("muladd_ns", "activation_ns", "error_ns", "latency_ns", "nic_bits_per_s")
"""The constants that are fitted."""

ROUNDS = 50
"""Most rounds downhill."""

STILL = 1e-9
"""Relative decrease of the squared errors that is not worth a round."""

EXACT = 1e-12
"""Relative error of a price that is none."""

SAME = 1e-9
"""Relative error of prices that speaks against nothing, however exact the others are."""

WORTH = 2
"""How far squares may rise where a constant is held, in variances of what a fit leaves."""

FLOOR = 1e-6
"""Least share of a constant in the epoch it matters most for at first: it stays above 0."""

INDEPENDENT = 1e-6
"""How large, relatively, a singular value of the effects must be to count as one."""

STEP = Fraction(1, 2**80)
"""Relative step of exact differences, far below the distance to the next slowest segments."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MeasuredEpoch:
    """How long an epoch took.

    Attributes
    ----------
    configuration : Configuration
        What was run, with its mapping.
    epoch_ns : int
        Time of an epoch.
    """

    configuration: Configuration
    epoch_ns: int


def _with(start: Constants, values: Sequence[Fraction]) -> Constants:
    """Return `start` with fitted values: three times, a factor, nanoseconds per bit."""
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
    """Return what `_with` takes to return `start`."""
    per_bit = 10**9 / start.nic_bits_per_s
    return start.muladd_ns, start.activation_ns, start.error_ns, Fraction(1), per_bit


class Row:
    """A measurement, and the prices of one unit of each constant that were met so far."""

    def __init__(self, problem: Problem, measurement: MeasuredEpoch) -> None:
        self.problem = problem
        self.configuration = measurement.configuration
        self.measured = measurement.epoch_ns
        self.gradients: list[Array] = []
        self.order = (self.measured, repr(self.configuration))

    def price(self, constants: Constants) -> Fraction:
        """Return what the epoch takes with these constants (ns)."""
        problem = replace(self.problem, constants=constants)
        return priced(problem, self.configuration, self._segments).epoch

    @cached_property
    def _segments(self) -> list[list[Segment]]:
        return cut(self.problem, self.configuration)

    def at(self, values: Sequence[float]) -> float:
        """Return the price, and see to it that its gradient is known."""
        price = float(self._at([Fraction(value) for value in values]))
        for known in self.gradients:
            if abs(float(known @ np.array(values)) - price) <= 1e-13 * price:
                return price
        self.gradients.append(self._differences([Fraction(value) for value in values]))
        return price

    def _at(self, values: Sequence[Fraction]) -> Fraction:
        return self.price(_with(self.problem.constants, values))

    def _differences(self, values: list[Fraction]) -> Array:
        """Return the gradient at `values`, or, if there is none, right beside them.

        There is none where two segments that differ are equally slow: differences to the right then
        add up to more than the price.
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
    """Constants in the form `_with` takes, and what is to be said of them."""

    values: Array
    held: frozenset[int]
    at_floor: frozenset[int]
    rounds: int


class _Point(NamedTuple):
    """Constants in units of a `_Search`, and the sum of the squared errors they make."""

    values: Array
    error: float


def solve(problem: Problem, measurements: Sequence[MeasuredEpoch]) -> Solution:
    """Fit the constants to some measurements."""
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
    """Looks for constants, in units such that 1 of each, priced as at the start, is an epoch.

    That is the measured epoch it matters most for. A price is the largest of what its gradients
    make of the constants, as far as they are known; all that is known is in `effects`, relative to
    what was measured.
    """

    def __init__(self, problem: Problem, measurements: Sequence[MeasuredEpoch]) -> None:
        # Sorted, so that sums are rounded alike in any order.
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
        """Return the prices of all that was measured, relative to what it took."""
        exact = (values * self.unit).tolist()
        relative: Array = np.array([row.at(exact) for row in self.rows]) / self.measured
        return relative

    def error(self, values: Array) -> float:
        return float(np.square(self.price(values) - 1).sum())

    def effects(self) -> Array:
        """Return all that is known: of a row, a gradient, a constant."""
        most = max(len(row.gradients) for row in self.rows)
        padded = [
            row.gradients + row.gradients[:1] * (most - len(row.gradients)) for row in self.rows
        ]
        effects: Array = np.array(padded) * self.unit / self.measured[:, None, None]
        return effects

    def variance(self, point: _Point) -> float:
        """Return the variance of what is left, given how many constants can be told; 0 if all."""
        effects = _active(self.effects(), point.values)
        known = int(np.linalg.matrix_rank(effects, tol=INDEPENDENT * np.linalg.norm(effects, 2)))
        return point.error / (len(self.rows) - known) if len(self.rows) > known else 0.0

    def fitted(self, begin: _Point, held: frozenset[int], limit: float = np.inf) -> _Point:
        """Go downhill from somewhere; constants in `held` are those of the start.

        The error is infinite where it seems to end above `limit`.
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
        """Return what fits best as far as gradients are known, found from `values` downhill."""
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
        # Steps end a little inside the bounds, and creep where constants are hard to tell apart.
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
    """Return the gradients that make the prices at `values`."""
    chosen: Array = effects[np.arange(len(effects)), (effects @ values).argmax(axis=1)]
    return chosen


def _limits(start: Constants) -> tuple[Array, Array]:
    """Return the least and the largest values that `_with` can make constants of."""
    most = MAX_VALUE * (1 - 1e-6)  # room for exact differences
    slowest = float(max(start.latency_ns))
    return (
        np.array([0, 0, 0, 0, 10**9 / most]),
        np.array([most, most, most, most / slowest, np.inf]),
    )


def constants_of(start: Constants, solution: Solution) -> Constants:
    """Return nine digits of what was fitted, and the rest as it was given."""
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

    return replace(
        exact,
        muladd_ns=kept(exact.muladd_ns, start.muladd_ns),
        activation_ns=kept(exact.activation_ns, start.activation_ns),
        error_ns=kept(exact.error_ns, start.error_ns),
        latency_ns=tuple(map(kept, exact.latency_ns, start.latency_ns)),
        nic_bits_per_s=kept(exact.nic_bits_per_s, start.nic_bits_per_s),
    )
