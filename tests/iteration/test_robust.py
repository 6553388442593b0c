"""The joint plan is the most robust of the alternatives that last as long."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings

from planner.costs import AffineCost, TableCost
from planner.deadline import NEVER
from planner.graphs import Graph
from planner.iteration import Plan, Problem, Synchronisation, best_of
from planner.iteration.alternatives import alternatives
from planner.iteration.evaluation import strained_of
from planner.robustness import STRAINS, Strain
from tests.iteration.iteration_strategies import problems, whole_rates
from tests.iteration.pricing import lasts
from tests.iteration.test_mixture import RAILS, one_large_one_small


def under(problem: Problem, plan: Plan, strain: Strain) -> int:
    """What a plan lasts under a strain, event by event; costs are whole, so nothing is rounded."""

    def slower(cost: AffineCost | TableCost) -> AffineCost:
        times = strain.transfer
        return AffineCost(times * cost.startup_ns, times * cost.ns_per_byte)

    def strained(option: Synchronisation) -> Synchronisation:
        whole = None if option.whole is None else slower(option.whole)
        return replace(option, half=slower(option.half), whole=whole)

    ops = tuple(
        replace(op, duration_ns=strain.compute * op.duration_ns) for op in problem.graph.ops
    )
    longer = replace(problem, graph=Graph(ops, problem.graph.parameters))
    known = {(option.algorithm, option.depth): strained(option) for option in problem.single}
    return lasts(longer, plan, known)


@pytest.mark.slow
@settings(max_examples=150)
@given(problems(cluster=whole_rates(), capped=False))
def test_no_alternative_as_long_is_more_robust(problem: Problem) -> None:
    known = alternatives(problem, NEVER)
    chosen = best_of(problem, known, 0.0)
    assume(chosen.plan is not None)
    assert chosen.plan is not None
    least = tuple(under(problem, chosen.plan, strain) for strain in STRAINS)
    assert strained_of(problem, chosen.plan) == least
    for alternative in known:
        if alternative.plan is not None and alternative.objective_ns == chosen.objective_ns:
            assert least <= tuple(under(problem, alternative.plan, strain) for strain in STRAINS)


def test_of_two_ways_that_hide_their_bytes_the_faster_one_is_taken() -> None:
    """Both are done before the backward pass is; one of them still is if the network is slower."""
    problem = one_large_one_small(RAILS)
    known = alternatives(problem, NEVER)
    chosen = best_of(problem, known, 0.0)
    equal = [
        strained_of(problem, one.plan)
        for one in known
        if one.plan is not None and one.objective_ns == chosen.objective_ns
    ]
    assert chosen.plan is not None
    assert len(set(equal)) > 1
    assert strained_of(problem, chosen.plan) == min(equal)
