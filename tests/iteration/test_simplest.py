"""Among alternatives of equal makespan the joint plan is the simplest."""

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings

from planner.families.iteration import Plan, Problem, best_of
from planner.families.iteration.alternatives import alternatives
from planner.families.iteration.baselines import enforced
from planner.families.iteration.evaluation import evaluate, simplicity
from planner.model.clusters import Cluster, Nic
from planner.model.graphs import Graph, Op, Parameter
from planner.model.topologies import Switch
from planner.solving.deadline import NEVER
from planner.solving.transfers import Part, Transfer
from tests.iteration.iteration_strategies import problems, whole_rates
from tests.iteration.test_mixture import RAILS, one_large_one_small


@pytest.mark.slow
@settings(max_examples=150)
@given(problems(cluster=whole_rates(), capped=False))
def test_no_alternative_as_long_is_simpler(problem: Problem) -> None:
    def key(plan: Plan) -> object:
        used = [transfer.algorithm or plan.algorithm for transfer in plan.transfers]
        sizes = [part.stop - part.start for one in plan.transfers for part in one.parts]
        return len(used), len(set(used)) > 1, sum(sizes)

    known = alternatives(problem, NEVER)
    chosen = best_of(problem, known, 0.0)
    assume(chosen.plan is not None)
    assert chosen.plan is not None
    plans = [one.plan for one in known if one.objective_ns == chosen.objective_ns and one.plan]
    assert key(chosen.plan) == min(map(key, plans))  # type: ignore[type-var]


def hidden() -> Problem:
    """Two gradients, the large one ready first; both can be sent before they are read."""
    ops = (
        Op("f0", 100, "forward"),
        Op("f1", 10, "forward", ("f0",)),
        Op("b1", 50, "backward", ("f1",)),
        Op("b0", 50, "backward", ("b1",)),
    )
    parameters = (Parameter("large", 85, ("b1",), ("f1",)), Parameter("small", 5, ("b0",), ("f1",)))
    cluster = Cluster("two", "a test", 2, Switch(2), Nic(Fraction(10**9), 0))
    return Problem(Graph(ops, parameters), cluster)


LARGE, SMALL = Part(0, 0, 85), Part(1, 0, 5)


def test_of_equal_plans_that_of_fewest_transfers_is_taken() -> None:
    """Both hide all bytes."""
    problem = hidden()
    one = enforced(problem, "ring", (Transfer((LARGE, SMALL)),))
    two = enforced(problem, "ring", (Transfer((LARGE,)), Transfer((SMALL,))))
    assert {evaluate(problem, plan).iteration_ns for plan in (one, two)} == {210}
    assert min([one, two], key=simplicity) == min([two, one], key=simplicity) == one


def test_of_two_ways_that_hide_their_bytes_that_by_one_algorithm_is_taken() -> None:
    """The mixture takes as long, in as many transfers."""
    problem = one_large_one_small(RAILS)
    known = alternatives(problem, NEVER)
    chosen = best_of(problem, known, 0.0)
    equal = [one.plan for one in known if one.objective_ns == chosen.objective_ns and one.plan]
    assert chosen.plan is not None
    assert {len(plan.algorithms) for plan in equal} == {1, 2}
    assert len(chosen.plan.algorithms) == 1
