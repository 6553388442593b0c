"""Quality of predictions: relative errors, rank correlation, and regret.

Complexity: O(n log n) in the number of predictions. Source: Yan et al. (KDD'15) report relative
errors and the order of configurations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import fsum


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
