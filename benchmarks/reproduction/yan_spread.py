"""How far configurations lie apart: the best, the median and the worst one.

Problem: Yan et al. say that a good configuration is several times as fast as a middling one; for
that the middle and the worst of the space must be known.

Method: methods `exact` and `worst`, and a sample of all configurations for the median.

Guarantee: the median's interval holds the median of the space with a probability of at least 95 %,
by order statistics, whatever the times are distributed like.
"""

from dataclasses import dataclass
from fractions import Fraction

from yan_sample import SAMPLES, sample, worst

from planner.families.yan import Problem, estimate
from planner.families.yan.exact import exact
from planner.model.errors import NotApplicableError
from planner.solving.deadline import NEVER


@dataclass(frozen=True, slots=True)
class EpochSpread:
    """Times of an epoch over all configurations of a problem, in nanoseconds, exact.

    Attributes
    ----------
    best : Fraction
        The least.
    median : Fraction
        The median of the sample.
    median_low, median_high : Fraction
        Between them lies the median of all configurations, with a probability of 95 % or more.
    worst : Fraction
        The most.
    sampled : int
        Configurations in the sample.
    """

    best: Fraction
    median: Fraction
    median_low: Fraction
    median_high: Fraction
    worst: Fraction
    sampled: int


def spread(problem: Problem, *, samples: int = SAMPLES, seed: int = 0) -> EpochSpread:
    """Return how far configurations lie apart.

    Parameters
    ----------
    problem : Problem
        The network and the machines; some configuration fits.
    samples : int
        Configurations to draw.
    seed : int
        Of the sample.

    Raises
    ------
    NotApplicableError
        If machines differ, configurations are fixed, the space is too large, or memory too short.
    """
    last, first = worst(problem, NEVER), exact(problem, NEVER)
    if last.plan is None or first.plan is None:
        raise NotApplicableError("memory_bytes", "no configuration fits")
    drawn = sample(problem, samples, seed, NEVER)
    low, high = interval(len(drawn.order))

    def epoch(rank: int) -> Fraction:
        return estimate(problem, drawn.configuration(rank)).epoch

    return EpochSpread(
        first.plan.ranking[0].epoch,
        epoch((len(drawn.order) - 1) // 2),
        epoch(low),
        epoch(high),
        last.plan.ranking[0].epoch,
        len(drawn.order),
    )


def interval(count: int) -> tuple[int, int]:
    """Return the ranks between which the median of all lies, with a probability of 95 %.

    At most k of the sample lie below it with the probability that a fair coin falls so. A sample
    of fewer than six is too small for that.
    """
    skipped, term, total = 0, 1, 1  # total: ways for at most `skipped` of them
    while total * 40 <= 2**count:
        term = term * (count - skipped) // (skipped + 1)
        total += term
        skipped += 1
    low = max(0, skipped - 1)
    return low, count - 1 - low
