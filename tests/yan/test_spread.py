"""The worst configuration, and the median of a sample, against all configurations."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yan_sample import _times, median, sample, worst
from yan_spread import spread

from planner.families.yan import Problem, estimate
from planner.families.yan.layer_program import state_at
from planner.families.yan.search import configuration_of
from planner.model.errors import NotApplicableError
from planner.solving.deadline import Deadline
from tests.yan.small_problems import TINY, as_method, everything, small_problems
from tests.yan.yan_strategies import problems


@pytest.mark.slow
@settings(max_examples=40)
@given(small_problems(memory=True), st.booleans())
def test_worst_is_the_worst(problem: Problem, short: bool) -> None:
    if not short:
        problem = replace(problem, memory_bytes=None)
    every = everything(problem)
    try:
        result = as_method(worst, problem)
    except NotApplicableError:
        result = None
    if result is None:  # the worst of all does not fit
        assert len(every) < len(everything(replace(problem, memory_bytes=None)))
        return
    assert (result.plan is None) == (not every)
    if result.plan is not None:
        assert result.plan.ranking[0].epoch == max(time for time, _ in every)


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


@pytest.mark.slow
@settings(max_examples=30)
@given(problems(max_machines=9, max_layers=4), st.integers(0, 3))
def test_samples_are_priced_like_the_model(problem: Problem, seed: int) -> None:
    drawn = sample(problem, 40, seed, Deadline(None))
    times = _times(drawn.engine, drawn.triples, np.array(drawn.states))
    options = drawn.engine.layerwise.options
    for which, triple in enumerate(drawn.triples):
        states = [
            state_at(one.choices, *state)
            for one, state in zip(options, drawn.states[which], strict=True)
        ]
        epoch = estimate(problem, configuration_of(triple, states)).epoch
        assert times[which] == pytest.approx(float(epoch), rel=1e-12)
    assert [times[which] for which in drawn.order] == sorted(times)


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
