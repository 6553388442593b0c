"""How good predictions are: their errors, their order, and what it costs to follow them.

Complexity: O(n log n) in the number of predictions. Source: Yan et al. (KDD'15) report the relative
errors of their model, and whether it puts configurations in the right order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import fsum

__all__ = ["Errors", "correlations", "errors", "regret"]


@dataclass(frozen=True, slots=True)
class Errors:
    """How far predictions are off, relative to what was measured.

    Attributes
    ----------
    mean, largest : float
        Mean and largest absolute error.
    """

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
    """Return Kendall's tau-b and Spearman's rho; None for both if one side is all the same."""
    from scipy.stats import kendalltau, spearmanr

    if len(set(predictions)) == 1 or len(set(measured)) == 1:
        return None, None
    pairs = (_ranks(predictions), _ranks([Fraction(time) for time in measured]))
    return float(kendalltau(*pairs).statistic), float(spearmanr(*pairs).statistic)


def _ranks(numbers: Sequence[Fraction]) -> list[int]:
    """Return the place of each number among the different ones."""
    rank = {number: place for place, number in enumerate(sorted(set(numbers)))}
    return [rank[number] for number in numbers]


def regret(predictions: Sequence[Fraction], measured: Sequence[int]) -> Fraction:
    """Return by how much what is predicted least exceeds the least, relatively; ties at worst."""
    least = min(predictions)
    chosen = max(
        known
        for prediction, known in zip(predictions, measured, strict=True)
        if prediction == least
    )
    return Fraction(chosen, min(measured)) - 1
