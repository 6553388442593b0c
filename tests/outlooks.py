"""Outlooks drawn at random, and what counts of times, worked out one by one."""

from collections.abc import Sequence
from fractions import Fraction

from hypothesis import strategies as st

from planner.solving.scenarios import SCENARIOS, Scenario, ScenarioSet

weights = st.integers(1, 5).map(Fraction)
percentiles = st.none() | st.sampled_from([Fraction(1), Fraction(50), Fraction(90), Fraction(100)])


@st.composite
def outlooks(draw: st.DrawFn) -> ScenarioSet:
    chosen = draw(st.lists(st.sampled_from((Scenario(), *SCENARIOS)), min_size=1, max_size=4))
    return ScenarioSet(tuple((one, draw(weights)) for one in chosen), draw(percentiles))


def counted(outlook: ScenarioSet, times: Sequence[int | Fraction]) -> Fraction:
    """What counts of some times, with every scenario as often as it weighs."""
    often = [
        time
        for time, (_, weight) in zip(times, outlook.scenarios, strict=True)
        for _ in range(int(weight))
    ]
    if outlook.percentile is None:
        return Fraction(sum(often), len(often))
    return Fraction(
        min(
            time
            for time in often
            if 100 * sum(other <= time for other in often) >= outlook.percentile * len(often)
        )
    )
