"""Among alternatives of equal makespan the joint plan is the simplest."""

import pytest
from hypothesis import assume, given, settings

from planner.families.iteration import Plan, Problem, best_of, evaluate
from planner.families.iteration.alternatives import alternatives
from planner.solving.deadline import NEVER
from tests.iteration.test_beside import disturbed, whole
from tests.iteration.test_mixture import RAILS, one_large_one_small


@pytest.mark.slow
@settings(max_examples=150)
@given(whole | disturbed(whole))
def test_no_alternative_as_long_is_simpler(problem: Problem) -> None:
    def key(plan: Plan) -> tuple[int, bool, int]:
        used = [transfer.algorithm or plan.algorithm for transfer in plan.transfers]
        sizes = [part.stop - part.start for one in plan.transfers for part in one.parts]
        return len(used), len(set(used)) > 1, sum(sizes)

    known = alternatives(problem, NEVER)
    for one in known:
        if one.plan is not None:
            assert one.objective_ns == evaluate(problem, one.plan).iteration_ns
    chosen = best_of(problem, known, 0.0)
    assume(chosen.plan is not None)
    assert chosen.plan is not None
    plans = [one.plan for one in known if one.objective_ns == chosen.objective_ns and one.plan]
    assert key(chosen.plan) == min(map(key, plans))


def test_of_two_ways_that_hide_their_bytes_that_by_one_algorithm_is_taken() -> None:
    """The mixture takes as long, in as many transfers."""
    problem = one_large_one_small(RAILS)
    known = alternatives(problem, NEVER)
    chosen = best_of(problem, known, 0.0)
    equal = [one.plan for one in known if one.objective_ns == chosen.objective_ns and one.plan]
    assert chosen.plan is not None
    assert {len(plan.algorithms) for plan in equal} == {1, 2}
    assert len(chosen.plan.algorithms) == 1
