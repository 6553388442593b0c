"""Constants of the model fitted to measured epochs, with cross-validation.

Method: fit to all measurements (`planner.families.yan.calibration.least_squares`). Then divide them
into folds, and predict each fold by constants fitted to the others.

Guarantee: no prediction uses its own measurement. Complexity: folds + 1 fits.
Source: own; cross-validation is Stone's, J. R. Stat. Soc. B 36 (1974).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import fsum

from planner.families.yan.calibration.least_squares import (
    FITTED,
    MeasuredEpoch,
    Row,
    constants_of,
    solve,
)
from planner.families.yan.problem import Constants, Problem
from planner.families.yan.segments import check
from planner.model.errors import InvalidInputError
from planner.model.validation import inside, integer

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
    pairs = (_ranks(predictions), _ranks([Fraction(time) for time in measured]))
    return float(kendalltau(*pairs).statistic), float(spearmanr(*pairs).statistic)


def _ranks(numbers: Sequence[Fraction]) -> list[int]:
    """Return the rank of each number among the distinct ones."""
    rank = {number: place for place, number in enumerate(sorted(set(numbers)))}
    return [rank[number] for number in numbers]


def regret(predictions: Sequence[Fraction], measured: Sequence[int]) -> Fraction:
    """Return the relative excess of the predicted best over the measured best; ties at worst."""
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
    rounds: int  # including those that decide which constants to hold
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
    rows = [Row(problem, measurement) for measurement in measurements]
    whole = solve(problem, measurements)
    report(1, folds + 1)
    # Cross-validation: each measurement is predicted by constants fitted without it.
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
