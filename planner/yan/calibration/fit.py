"""The constants of the model, fitted to epochs that were measured, and how good they are.

Problem: how far off is what fitted constants predict of configurations that nobody has run?

Method: the constants are fitted to all measurements (`planner.yan.calibration.least_squares`). Then
the measurements are divided into folds, and each fold is predicted by constants that were fitted
to the others.

Guarantee: no prediction has seen its own measurement. Complexity: folds + 1 fits.
Source: own; cross-validation is Stone's, J. R. Stat. Soc. B 36 (1974).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from planner.errors import InvalidInputError
from planner.validation import integer
from planner.yan.calibration.least_squares import FITTED, MeasuredEpoch, Row, constants_of, solve
from planner.yan.calibration.quality import Errors, correlations, errors, regret
from planner.yan.checker import check
from planner.yan.problem import Constants, Problem

__all__ = ["Fit", "fit"]


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted constants, and how far they can be trusted.

    Attributes
    ----------
    constants : Constants
        Nine digits of what was fitted; what was held as it was given.
    held : tuple of str
        Constants at their starting values, which the measurements do not speak against.
    at_floor : tuple of str
        Constants that fit best at next to nothing.
    rounds : int
        Rounds it took, also to find what is held.
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
    measurements: Sequence[MeasuredEpoch],
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
    measurements : sequence of MeasuredEpoch
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
    for place, measurement in enumerate(measurements):
        path = f"measurements[{place}]"
        integer(measurement.epoch_ns, f"{path}.epoch_ns", minimum=1)
        try:
            check(problem, measurement.configuration)
        except InvalidInputError as error:
            inner = f"{path}.{error.path}" if error.path else path
            raise InvalidInputError(inner, error.message) from None
    for place, layer in enumerate(problem.layers):
        if layer.forward_ns is not None:
            raise InvalidInputError(
                f"layers[{place}].forward_ns", "measured already: constants would not matter"
            )
    folds = min(folds, len(measurements))
    report = progress or (lambda _done, _total: None)
    rows = [Row(problem, measurement) for measurement in measurements]
    whole = solve(problem, measurements)
    report(1, folds + 1)
    # What is held out: each measurement is predicted by constants that have not seen it.
    predictions = [Fraction(0)] * len(rows)
    for part in range(folds):
        others = [
            measurement for place, measurement in enumerate(measurements) if place % folds != part
        ]
        constants = constants_of(problem.constants, solve(problem, others))
        for place in range(part, len(rows), folds):
            predictions[place] = rows[place].price(constants)
        report(part + 2, folds + 1)
    measured = [row.measured for row in rows]
    constants = constants_of(problem.constants, whole)
    kendall, spearman = correlations(predictions, measured)
    return Fit(
        constants=constants,
        held=tuple(FITTED[column] for column in sorted(whole.held)),
        at_floor=tuple(FITTED[column] for column in sorted(whole.at_floor)),
        rounds=whole.rounds,
        fitted=errors([row.price(constants) for row in rows], measured),
        folds=folds,
        held_out=errors(predictions, measured),
        predictions_ns=tuple(-int(-prediction // 1) for prediction in predictions),
        kendall=kendall,
        spearman=spearman,
        regret=regret(predictions, measured),
    )
