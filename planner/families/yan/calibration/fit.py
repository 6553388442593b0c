"""Constants of the model fitted to measured epochs by least squares, with cross-validation.

Problem: find C_muladd, C_act, C_err, one factor for all of C_ncost(H), and 1/C_nbw, all above 0,
with the least sum of squared relative errors. Interference and bits per number are fixed.
Method: a price is the sum, over layers and phases, of the slowest segment's time, which is linear
in these constants; least squares, step by step. Constants that the data do not determine are
held. See docs/yan.md, "How constants are measured and fitted".

Guarantee: never worse than the start times any allowed factor; a local minimum is possible. The
order of the measurements has no influence, and no prediction uses its own measurement.
Complexity: O(measurements · segments) a step. Source: own; cross-validation is Stone's, J. R. Stat.
Soc. B 36 (1974); the model is that of Yan et al. (KDD'15).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import fsum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.families.yan.configuration import Configuration
from planner.families.yan.model import (
    computed_times,
    cut,
    distinct,
    estimate,
    reading_times,
    speeds_of,
)
from planner.families.yan.problem import Constants, Problem
from planner.families.yan.segments import check
from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_VALUE, inside, integer

FITTED = ("muladd_ns", "activation_ns", "error_ns", "latency_ns", "nic_bits_per_s")

ROUNDS = 50
"""Most descents of a fit."""

HALVINGS = 12
"""Lengths of a step that are tried, each half of the one before."""

STILL = 1e-9
"""Relative decrease of the squared errors below which the descent stops."""

SAME = 1e-9
"""Relative error of prices that always counts as agreement, however exact the others are."""

WORTH = 2
"""Allowed increase of the squares for a held constant, in residual variances (Mallows' Cp)."""

FLOOR = 1e-6
"""Initial least share of a constant in the epoch it matters most for, which keeps it above 0."""

INDEPENDENT = 1e-6
"""Relative size from which a singular value of the effects counts towards the rank."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MeasuredEpoch:
    """A configuration that was run, with its mapping, and the measured time of an epoch."""

    configuration: Configuration
    epoch_ns: int


def _with(start: Constants, values: Sequence[Fraction | int]) -> Constants:
    """Return `start` with fitted values: three times, a latency factor, nanoseconds per bit."""
    muladd, activation, error, factor, per_bit = map(Fraction, values)
    return replace(
        start,
        muladd_ns=muladd,
        activation_ns=activation,
        error_ns=error,
        latency_ns=tuple(factor * latency for latency in start.latency_ns),
        nic_bits_per_s=10**9 / per_bit,
    )


def _values(start: Constants) -> tuple[Fraction, ...]:
    """Return the fitted values of some constants, the inverse of `_with`."""
    per_bit = 10**9 / start.nic_bits_per_s
    return start.muladd_ns, start.activation_ns, start.error_ns, Fraction(1), per_bit


class _Model:
    """The price of a configuration as a function of the fitted constants."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        ones = (1,) * len(FITTED)
        twos = [(*ones[:place], 2, *ones[place + 1 :]) for place in range(len(FITTED))]
        self.bases = [
            replace(problem, constants=_with(problem.constants, values)) for values in (ones, *twos)
        ]
        """All constants 1, and one of them 2: the difference of two prices is its effect."""

    def effects(self, configuration: Configuration) -> Array:
        """Return the effects of the constants, by replica, phase of a layer, segment, constant."""
        differ = not self.problem.uniform
        segments = [distinct(own, differ=differ) for own in cut(self.problem, configuration)]
        most = max(map(len, segments))

        def times(problem: Problem) -> NDArray[np.object_]:
            """Return times of an epoch by replica, layer, segment and phase; the first ones pad."""
            reading = reading_times(problem, configuration)
            replicas = []
            for speeds in speeds_of(problem, configuration):
                layers = []
                for place, own in enumerate(segments):
                    rows = []
                    for segment in own:
                        forward, fetch, backward, errors, update = computed_times(
                            problem, configuration, place, [segment], speeds
                        )
                        rows.append((forward + fetch, backward + errors, update, reading[place]))
                    layers.append(rows + rows[:1] * (most - len(rows)))
                replicas.append(layers)
            return np.array(replicas, dtype=object)

        base, *raised = map(times, self.bases)
        effects = np.stack([(each - base).astype(float) for each in raised], axis=-1)
        return effects.swapaxes(2, 3).reshape(len(base), -1, most, len(FITTED))


class Solution(NamedTuple):
    """Fitted constants with nine digits, the names of held constants, and of those at the floor."""

    constants: Constants
    held: tuple[str, ...]
    at_floor: tuple[str, ...]


class _Point(NamedTuple):
    """Constants in units of a `_Search`, and their sum of squared errors."""

    values: Array
    error: float


def solve(start: Constants, effects: Sequence[Array]) -> Solution:
    """Return the fitted constants; `effects` are relative to the measured times."""
    search = _Search(start, effects)
    point = search.fitted(search.scaled, frozenset())
    nothing = len(effects) * SAME**2
    worth = WORTH * search.variance(point) + nothing
    held: frozenset[int] = frozenset()
    for column in np.argsort(search.shares, kind="stable").tolist():
        more = held | {column}
        refitted = search.fitted(point, more)
        if refitted.error <= min(point.error + worth, max(search.scaled.error, nothing)):
            held, point = more, refitted
    at_floor = set(np.flatnonzero(point.values <= 2 * search.low).tolist()) - held
    return Solution(
        _constants(start, (point.values * search.unit).tolist(), held),
        tuple(FITTED[column] for column in sorted(held)),
        tuple(FITTED[column] for column in sorted(at_floor)),
    )


class _Search:
    """Fit in normalised units: 1 unit of a constant costs one epoch.

    This is the measured epoch in which the constant matters most, priced at the start.
    """

    def __init__(self, start: Constants, effects: Sequence[Array]) -> None:
        # Sorted, so that the order of the measurements does not affect rounding.
        self.measured = sorted(effects, key=lambda each: (each.shape, each.tobytes()))
        self.unit = np.ones(len(FITTED))
        values = np.array([float(value) for value in _values(start)])
        gradients = self.gradients(values)
        self.unit = 1 / gradients.max(axis=0)
        self.start = values / self.unit
        self.shares = (gradients * values).mean(axis=0)
        least, self.high = (limit / self.unit for limit in _limits(start))
        ratios = gradients @ values
        factor = ratios.sum() / np.square(ratios).sum()
        self.scaled = self.point(np.clip(factor * self.start, least, self.high))
        self.low = np.maximum(least, np.minimum(FLOOR, self.scaled.values / 2))

    def gradients(self, values: Array) -> Array:
        """Return the gradient of each price; shape (measurements, constants)."""
        exact = values * self.unit
        rows = []
        for effects in self.measured:
            slowest = (effects @ exact).argmax(axis=2)[..., None, None]
            replicas = np.take_along_axis(effects, slowest, axis=2).sum(axis=(1, 2))
            rows.append(replicas[(replicas @ exact).argmax()])
        return np.array(rows) * self.unit

    def point(self, values: Array) -> _Point:
        errors = self.gradients(values) @ values - 1  # of prices, relative
        return _Point(values, float(np.square(errors).sum()))

    def variance(self, point: _Point) -> float:
        """Return the residual variance; 0 if the data are too few to leave any."""
        gradients = self.gradients(point.values)
        tolerance = INDEPENDENT * np.linalg.norm(gradients, 2)
        spare = len(gradients) - int(np.linalg.matrix_rank(gradients, tol=tolerance))
        return point.error / spare if spare else 0.0

    def fitted(self, begin: _Point, held: frozenset[int]) -> _Point:
        """Descend from a point; constants in `held` keep their starting values."""
        free = np.array([place for place in range(len(FITTED)) if place not in held], dtype=int)
        values = self.start.copy()
        values[free] = begin.values[free]
        best = self.point(values)
        for _ in range(ROUNDS if len(free) else 0):
            found = self._descended(best, free)
            gain = best.error - found.error
            best = min(best, found, key=lambda point: point.error)
            if gain <= STILL * best.error + len(self.measured) * SAME**2:
                break
        return best

    def _descended(self, begin: _Point, free: NDArray[np.intp]) -> _Point:
        """Return the best point towards the least squares for the slowest segments of `begin`.

        Other segments may be the slowest at such a point, so shorter and shorter steps are tried.
        """
        from scipy.optimize import lsq_linear

        gradients = self.gradients(begin.values)
        effects, values = gradients[:, free], begin.values
        goal = 1 - gradients @ values + effects @ values[free]
        bounds = (self.low[free], self.high[free])
        step = values.copy()
        step[free] = np.clip(lsq_linear(effects, goal, bounds, method="bvls").x, *bounds)
        points = (self.point(values + 0.5**halved * (step - values)) for halved in range(HALVINGS))
        return min(points, key=lambda point: point.error)


def _limits(start: Constants) -> tuple[Array, Array]:
    """Return the least and the largest values that `_with` can turn into valid constants."""
    most = MAX_VALUE * (1 - 1e-6)
    return (
        np.array([0, 0, 0, 0, 10**9 / most]),
        np.array([most, most, most, most / float(max(start.latency_ns)), np.inf]),
    )


def _constants(start: Constants, fitted: Sequence[float], held: frozenset[int]) -> Constants:
    """Return the constants for fitted values of nine digits; the held ones are unchanged."""
    return _with(
        start,
        [
            known if place in held or value == float(known) else Fraction(f"{value:.9g}")
            for place, (known, value) in enumerate(zip(_values(start), fitted, strict=True))
        ],
    )


# ---
# Quality of predictions: relative errors, rank correlation, and regret.
#
# Complexity: O(n log n) in the number of predictions. Source: Yan et al. (KDD'15) report relative
# errors and the order of configurations.


@dataclass(frozen=True, slots=True)
class Errors:
    """Mean and largest absolute error of predictions, relative to the measurements."""

    mean: float
    largest: float


def errors(predictions: Sequence[Fraction], measured: Sequence[int]) -> Errors:
    """Return the errors of predictions of positive numbers."""
    deviations = [
        abs(float(prediction / known - 1))
        for prediction, known in zip(predictions, measured, strict=True)
    ]
    return Errors(fsum(deviations) / len(deviations), max(deviations))


def correlations(
    predictions: Sequence[Fraction], measured: Sequence[int]
) -> tuple[float | None, float | None]:
    """Return Kendall's tau-b and Spearman's rho; None for both if one side is constant."""
    from scipy.stats import kendalltau, spearmanr

    if len(set(predictions)) == 1 or len(set(measured)) == 1:
        return None, None
    pairs = [float(time) for time in predictions], [float(time) for time in measured]
    return float(kendalltau(*pairs).statistic), float(spearmanr(*pairs).statistic)


def regret(predictions: Sequence[Fraction], measured: Sequence[int]) -> Fraction:
    """Return the relative excess of the predicted best over the measured best; worst of ties."""
    least = min(predictions)
    chosen = max(
        known
        for prediction, known in zip(predictions, measured, strict=True)
        if prediction == least
    )
    return Fraction(chosen, min(measured)) - 1


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted constants, and how well they predict.

    The errors `held_out`, `predictions_ns`, the rank correlations (Kendall's tau-b, Spearman's rho;
    None if all are equal) and `regret` are those of the cross-validation. Regret is the relative
    excess of the measured time of the configuration predicted fastest over the best; the worst of
    ties.
    """

    constants: Constants  # nine digits; held constants unchanged
    held: tuple[str, ...]  # kept at their starting values, which fit as well
    at_floor: tuple[str, ...]  # fit best near zero
    fitted: Errors  # of the fit to all measurements
    folds: int
    held_out: Errors
    predictions_ns: tuple[int, ...]  # in the order of the measurements
    kendall: float | None
    spearman: float | None
    regret: Fraction


def fit(
    problem: Problem,
    measurements: Sequence[MeasuredEpoch],
    *,
    folds: int = 5,
    progress: Callable[[int, int], None] | None = None,
) -> Fit:
    """Fit the constants of a problem to measured epochs.

    Parameters
    ----------
    problem : Problem
        Network, machines, and the constants to start from. Its memory limit is ignored, because the
        measured configurations did run.
    measurements : sequence of MeasuredEpoch
        At least two. Measurement i is in fold i mod `folds`.
    folds : int
        Folds of the cross-validation, at least two; at most one for each measurement.
    progress : callable, optional
        Called after each fit with the number of fits done, and of all.

    Raises
    ------
    InvalidInputError
        If there are too few measurements, or one does not fit the problem, with a path such as
        ``measurements[3].layers[0].threads``.
    """
    integer(folds, "folds", minimum=2)
    problem = replace(problem, memory_bytes=None, fixed=())
    if len(measurements) < 2:
        raise InvalidInputError(
            "measurements", f"expected at least 2, to fit and to check, got {len(measurements)}"
        )
    for place, measurement in enumerate(measurements):
        path = f"measurements[{place}]"
        integer(measurement.epoch_ns, f"{path}.epoch_ns", minimum=1)
        with inside(path):
            check(problem, measurement.configuration)
    for place, layer in enumerate(problem.layers):
        if layer.forward_ns is not None:
            raise InvalidInputError(
                f"layers[{place}].forward_ns", "measured already: constants would not matter"
            )
    folds = min(folds, len(measurements))
    report = progress or (lambda _done, _total: None)
    model, start = _Model(problem), problem.constants
    measured = [measurement.epoch_ns for measurement in measurements]
    effects = [model.effects(each.configuration) / each.epoch_ns for each in measurements]

    def prices(constants: Constants, some: Sequence[MeasuredEpoch]) -> list[Fraction]:
        priced = replace(problem, constants=constants)
        return [estimate(priced, each.configuration).epoch for each in some]

    whole = solve(start, effects)
    report(1, folds + 1)
    # Cross-validation: each measurement is predicted by constants fitted without it.
    predictions = [Fraction(0)] * len(measurements)
    for part in range(folds):
        others = [each for place, each in enumerate(effects) if place % folds != part]
        constants = solve(start, others).constants
        predictions[part::folds] = prices(constants, measurements[part::folds])
        report(part + 2, folds + 1)
    kendall, spearman = correlations(predictions, measured)
    return Fit(
        *whole,
        fitted=errors(prices(whole.constants, measurements), measured),
        folds=folds,
        held_out=errors(predictions, measured),
        predictions_ns=tuple(-int(-prediction // 1) for prediction in predictions),
        kendall=kendall,
        spearman=spearman,
        regret=regret(predictions, measured),
    )
