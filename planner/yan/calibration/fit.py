"""The constants of the model, fitted to epochs that were measured.

Problem: given measured epochs of several configurations, find ``C_muladd``, ``C_act``, ``C_err``,
one factor for all of ``C_ncost(H)``, and ``1 / C_nbw``, all above 0, with the least sum of squared
relative errors. Interference and the sizes in bits stay what they are.

Method: in these five the model is homogeneous and linear but for the choice of the slowest
segments, so its value is its gradient times the constants. Each round takes the gradients at the
current constants (exact differences of exact prices), solves the linear least-squares problem with
bounds, and goes on from there, or, where it has been there before, half-way back to the best
constants so far; until nothing moves, or 50 rounds. What the measurements cannot tell is held at
its starting value: constants no price depends on, and of several that have the same effect those
that start with the smallest share of the time.

Guarantee: the best round's constants, as a rule optimal for the slowest segments they lead to,
which need not be the global optimum. The order of the measurements has no influence on the
constants.

Complexity: O(rounds · folds · measurements) prices, and five more for each new choice of slowest
segments of a measurement.

Source: own; the model is that of Yan et al. (KDD'15).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidInputError
from planner.validation import MAX_VALUE, integer
from planner.yan.calibration.quality import Errors, correlations, errors, regret
from planner.yan.checker import check
from planner.yan.configuration import Configuration
from planner.yan.model import estimate
from planner.yan.problem import Constants, Problem

__all__ = ["FITTED", "Fit", "Measurement", "fit"]

FITTED = ("muladd_ns", "activation_ns", "error_ns", "latency_ns", "nic_bits_per_s")
"""The constants that are fitted."""

ROUNDS = 50
"""Most rounds of one fit."""

HALVINGS = 10
"""Most rounds that go half-way back without finding anything better."""

STILL = 1e-10
"""Relative change of constants that stand still."""

FLOOR = 1e-6
"""Least share of a constant in the epoch it matters most for, so that it stays above 0."""

INDEPENDENT = 1e-6
"""How far, relatively, a constant's effect must be from those of others to be told from them."""

STEP = Fraction(1, 2**80)
"""Relative step of exact differences, far below the distance to the next slowest segments."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Measurement:
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


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted constants, and how far they can be trusted.

    Attributes
    ----------
    constants : Constants
        Nine digits of what was fitted; what was held as it was given.
    held : tuple of str
        Constants the measurements cannot tell, at their starting values.
    at_floor : tuple of str
        Constants that fit best at next to nothing of any epoch.
    rounds : int
        Rounds it took.
    fitted : Errors
        Of the measurements that were fitted, all of them.
    folds : int
        Parts the measurements were divided into for what follows: each part is predicted by
        constants fitted to the others.
    held_out : Errors
        Of these predictions.
    predictions_ns : tuple of int
        The predictions, in the order of the measurements.
    kendall, spearman : float or None
        Rank correlations (tau-b, rho) of predictions and measurements; None if all are equal.
    regret : Fraction
        How much longer the configuration with the least prediction took than the best one; the
        worst of several that are predicted alike.
    """

    constants: Constants
    held: tuple[str, ...]
    at_floor: tuple[str, ...]
    rounds: int
    fitted: Errors
    folds: int
    held_out: Errors
    predictions_ns: tuple[int, ...]
    kendall: float | None
    spearman: float | None
    regret: Fraction


def fit(
    problem: Problem,
    measurements: Sequence[Measurement],
    *,
    folds: int = 5,
    progress: Callable[[int, int], None] | None = None,
) -> Fit:
    """Fit the constants of a problem to measured epochs.

    Parameters
    ----------
    problem : Problem
        Network, machines, and the constants to start from. Its memory does not matter: what was
        measured did run.
    measurements : sequence of Measurement
        At least two. Measurement i is in part i mod `folds` of the cross-validation.
    folds : int
        Parts of the cross-validation, at least two; one a measurement where there are fewer.
    progress : callable, optional
        Called with the number of fits done, and of all, after each of them.

    Raises
    ------
    InvalidInputError
        If there are too few measurements, or one of them is none of a configuration of the
        problem, with a path such as ``measurements[3].layers[0].threads``.
    """
    integer(folds, "folds", minimum=2)
    problem = replace(problem, memory_bytes=None, fixed=())
    if len(measurements) < 2:
        raise InvalidInputError(
            "measurements", f"expected at least 2, to fit and to check, got {len(measurements)}"
        )
    for place, one in enumerate(measurements):
        path = f"measurements[{place}]"
        integer(one.epoch_ns, f"{path}.epoch_ns", minimum=1)
        try:
            check(problem, one.configuration)
        except InvalidInputError as error:
            inner = f"{path}.{error.path}" if error.path else path
            raise InvalidInputError(inner, error.message) from None
    folds = min(folds, len(measurements))
    report = progress or (lambda _done, _total: None)
    rows = [_Row(problem, one) for one in measurements]
    whole = _solve(problem, rows)
    report(1, folds + 1)
    predictions = [Fraction(0)] * len(rows)
    for part in range(folds):
        others = [row for place, row in enumerate(rows) if place % folds != part]
        constants = _constants(problem.constants, _solve(problem, others))
        for place in range(part, len(rows), folds):
            predictions[place] = rows[place].price(constants)
        report(part + 2, folds + 1)
    measured = [row.measured for row in rows]
    constants = _constants(problem.constants, whole)
    kendall, spearman = correlations(predictions, measured)
    return Fit(
        constants=constants,
        held=tuple(FITTED[one] for one in sorted(whole.held)),
        at_floor=tuple(FITTED[one] for one in sorted(whole.at_floor)),
        rounds=whole.rounds,
        fitted=errors([row.price(constants) for row in rows], measured),
        folds=folds,
        held_out=errors(predictions, measured),
        predictions_ns=tuple(-int(-one // 1) for one in predictions),
        kendall=kendall,
        spearman=spearman,
        regret=regret(predictions, measured),
    )


def _with(start: Constants, values: Sequence[Fraction]) -> Constants:
    """Return `start` with fitted values: three times, a factor, nanoseconds per bit."""
    muladd, activation, error, factor, per_bit = values
    return replace(
        start,
        muladd_ns=muladd,
        activation_ns=activation,
        error_ns=error,
        latency_ns=tuple(factor * one for one in start.latency_ns),
        nic_bits_per_s=10**9 / per_bit,
    )


def _values(start: Constants) -> tuple[Fraction, ...]:
    """Return what `_with` takes to return `start`."""
    per_bit = 10**9 / start.nic_bits_per_s
    return start.muladd_ns, start.activation_ns, start.error_ns, Fraction(1), per_bit


class _Row:
    """A measurement, and the choices of slowest segments that were met so far."""

    def __init__(self, problem: Problem, measurement: Measurement) -> None:
        self.problem = problem
        self.configuration = measurement.configuration
        self.measured = measurement.epoch_ns
        self.gradients: list[Array] = []
        self.order = (self.measured, repr(self.configuration))

    def price(self, constants: Constants) -> Fraction:
        problem = replace(self.problem, constants=constants)
        return estimate(problem, self.configuration).epoch

    def gradient(self, values: Sequence[float]) -> Array:
        """Return the price of one unit of each constant, where prices are as at `values`."""
        price = float(self._at([Fraction(one) for one in values]))
        for known in self.gradients:
            if abs(float(known @ np.array(values)) - price) <= 1e-13 * price:
                return known
        found = self._differences([Fraction(one) for one in values])
        self.gradients.append(found)
        return found

    def _at(self, values: Sequence[Fraction]) -> Fraction:
        return self.price(_with(self.problem.constants, values))

    def _differences(self, values: list[Fraction]) -> Array:
        """Return the gradient at `values`, or, if there is none, right beside them.

        There is none where two segments that differ are equally slow: differences to the right then
        add up to more than the price.
        """
        for attempt in range(4):
            beside = [
                one * (1 + attempt * Fraction(1, 2**40 + 2**38 * place))
                for place, one in enumerate(values)
            ]
            price = self._at(beside)
            found = []
            for place, one in enumerate(beside):
                moved = [*beside[:place], one * (1 + STEP), *beside[place + 1 :]]
                found.append((self._at(moved) - price) / (one * STEP))
            if sum(map(Fraction.__mul__, found, beside)) == price:
                break
        return np.array([float(one) for one in found])


class _Solution(NamedTuple):
    """Constants in the form `_with` takes, and what is to be said of them."""

    values: Array
    held: frozenset[int]
    at_floor: frozenset[int]
    rounds: int


def _solve(problem: Problem, rows: Sequence[_Row]) -> _Solution:
    """Fit the constants to some measurements."""
    rows = sorted(rows, key=lambda row: row.order)  # so that sums are rounded alike in any order
    start = np.array([float(one) for one in _values(problem.constants)])
    measured = np.array([float(row.measured) for row in rows])
    limits = _limits(problem.constants)
    values = start
    shares: Array | None = None
    held: frozenset[int] = frozenset()
    best: _Solution | None = None
    best_error, halvings = np.inf, 0
    visited = [start]
    for done in range(1, ROUNDS + 1):
        effects = np.array([row.gradient(values.tolist()) for row in rows]) / measured[:, None]
        if shares is None:
            shares = (effects * start).mean(axis=0)
            held = _held(effects, shares)
        error = float(np.square(effects @ values - 1).sum())
        if best is None or error < best_error * (1 - STILL):
            small = np.flatnonzero(values * effects.max(axis=0) <= 2 * FLOOR)
            at_floor = frozenset(small.tolist()) - held
            best, best_error, halvings = _Solution(values, held, at_floor, done), error, 0
        held = _held(effects, shares)
        wanted = _bounded(effects, start, held, limits)
        if any(_alike(wanted, one) for one in visited):
            halvings += 1
            wanted = (values + best.values) / 2
        if halvings > HALVINGS or _alike(wanted, best.values):
            break
        visited.append(wanted)
        values = wanted
    assert best is not None
    return best


def _alike(one: Array, other: Array) -> bool:
    return bool(np.allclose(one, other, rtol=STILL, atol=0))


def _held(effects: Array, shares: Array) -> frozenset[int]:
    """Return the constants whose effects are 0, or combinations of those with larger shares."""
    held = set()
    basis: list[Array] = []
    for column in np.argsort(-shares, kind="stable").tolist():
        rest = effects[:, column]
        length = float(np.linalg.norm(rest))
        for _ in range(2):  # the second time removes what rounding left
            for one in basis:
                rest = rest - (one @ rest) * one
        left = float(np.linalg.norm(rest))
        if left <= INDEPENDENT * length:
            held.add(column)
        else:
            basis.append(rest / left)
    return frozenset(held)


def _limits(start: Constants) -> tuple[Array, Array]:
    """Return the least and the largest values that `_with` can make constants of."""
    most = MAX_VALUE * (1 - 1e-6)  # room for exact differences
    slowest = float(max(start.latency_ns))
    return (
        np.array([0, 0, 0, 0, 10**9 / most]),
        np.array([most, most, most, most / slowest, np.inf]),
    )


def _bounded(
    effects: Array, start: Array, held: frozenset[int], limits: tuple[Array, Array]
) -> Array:
    """Return the constants of least squares, each at or above its floor."""
    from scipy.optimize import lsq_linear

    free = [column for column in range(len(start)) if column not in held]
    values = start.copy()
    if not free:
        return values
    fixed = sorted(held)
    scale = effects[:, free].max(axis=0)
    wanted = 1 - effects[:, fixed] @ start[fixed]
    found = lsq_linear(effects[:, free] / scale, wanted, (FLOOR, np.inf), method="bvls").x
    values[free] = np.maximum(found, FLOOR) / scale
    return np.clip(values, *limits)


def _constants(start: Constants, solution: _Solution) -> Constants:
    """Return nine digits of what was fitted, and the rest as it was given."""
    before = _values(start)
    values = [
        before[place] if place in solution.held or one == float(before[place]) else Fraction(one)
        for place, one in enumerate(solution.values.tolist())
    ]
    exact = _with(start, values)

    def kept(one: Fraction, given: Fraction) -> Fraction:
        return given if one == given else min(Fraction(f"{float(one):.9g}"), Fraction(MAX_VALUE))

    return replace(
        exact,
        muladd_ns=kept(exact.muladd_ns, start.muladd_ns),
        activation_ns=kept(exact.activation_ns, start.activation_ns),
        error_ns=kept(exact.error_ns, start.error_ns),
        latency_ns=tuple(map(kept, exact.latency_ns, start.latency_ns)),
        nic_bits_per_s=kept(exact.nic_bits_per_s, start.nic_bits_per_s),
    )
