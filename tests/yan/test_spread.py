"""The worst configuration, and the median of a sample, against all configurations."""

from collections import Counter
from dataclasses import replace

import pytest
from yan_sample import median, sample
from yan_spread import spread

from planner.solving.deadline import Deadline
from tests.yan.small_problems import TINY, as_method, everything


@pytest.mark.slow
@pytest.mark.parametrize("memory", [None, 700])
def test_sample_is_uniform(memory: int | None) -> None:
    problem = replace(TINY, memory_bytes=memory)
    every = everything(problem)
    count = 20_000
    drawn = sample(problem, count, 1, Deadline(None))
    assert len(drawn.order) == count
    seen = Counter(drawn.configuration(rank) for rank in range(count))
    expected = count / len(every)
    for _, one in every:
        assert abs(seen.pop(one, 0) - expected) < 6 * expected**0.5
    assert not seen


def test_spread_of_a_small_problem() -> None:
    times = sorted(time for time, _ in everything(TINY))
    found = spread(TINY)
    assert (found.best, found.worst) == (times[0], times[-1])
    assert found.best < found.median_low <= found.median <= found.median_high < found.worst
    middle = times[(len(times) - 1) // 2]
    assert found.median_low <= middle <= found.median_high
    assert found.sampled == 10_000
    plan = as_method(median, TINY).plan
    assert plan is not None
    assert plan.ranking[0].epoch == found.median
    assert spread(TINY, samples=10, seed=1).sampled == 10
