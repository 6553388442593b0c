"""Among alternatives of equal makespan the joint plan is the simplest, then the most robust."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings

from planner.families.iteration import Plan, Problem, Synchronisation, best_of
from planner.families.iteration.alternatives import alternatives
from planner.families.iteration.baselines import enforced
from planner.families.iteration.evaluation import evaluate, simplest, strained_of
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost, TableCost
from planner.model.graphs import Graph, Op, Parameter
from planner.model.topologies import Switch
from planner.solving.deadline import NEVER
from planner.solving.tie_break import STRAINS, Strain
from planner.solving.transfers import Part, Transfer
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
def test_no_alternative_as_long_is_simpler_or_as_simple_and_more_robust(problem: Problem) -> None:
    def key(plan: Plan) -> object:
        used = [transfer.algorithm or plan.algorithm for transfer in plan.transfers]
        sizes = [part.stop - part.start for one in plan.transfers for part in one.parts]
        strains = tuple(under(problem, plan, strain) for strain in STRAINS)
        return len(used), len(set(used)) > 1, sum(sizes), strains

    known = alternatives(problem, NEVER)
    chosen = best_of(problem, known, 0.0)
    assume(chosen.plan is not None)
    assert chosen.plan is not None
    assert strained_of(problem, chosen.plan) == tuple(
        under(problem, chosen.plan, strain) for strain in STRAINS
    )
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
    """Both hide all bytes; two transfers would do so on a slower network, too."""
    problem = hidden()
    one = enforced(problem, "ring", (Transfer((LARGE, SMALL)),))
    two = enforced(problem, "ring", (Transfer((LARGE,)), Transfer((SMALL,))))
    assert {evaluate(problem, plan).iteration_ns for plan in (one, two)} == {210}
    assert strained_of(problem, two) < strained_of(problem, one)
    assert simplest(problem, [one, two]) == simplest(problem, [two, one]) == one


def test_of_equally_simple_plans_the_most_robust_is_taken() -> None:
    """Both hide all bytes; on a slower network the large gradient had better leave first."""
    problem = hidden()
    sent = Transfer((LARGE,)), Transfer((SMALL,))
    good, bad = (enforced(problem, "ring", order) for order in (sent, sent[::-1]))
    assert {evaluate(problem, plan).iteration_ns for plan in (good, bad)} == {210}
    assert strained_of(problem, good) < strained_of(problem, bad)
    assert simplest(problem, [good, bad]) == simplest(problem, [bad, good]) == good


def test_of_two_ways_that_hide_their_bytes_that_by_one_algorithm_is_taken() -> None:
    """The mixture takes as long, in as many transfers; it would bear a slower network better."""
    problem = one_large_one_small(RAILS)
    known = alternatives(problem, NEVER)
    chosen = best_of(problem, known, 0.0)
    equal = [one.plan for one in known if one.objective_ns == chosen.objective_ns and one.plan]
    assert chosen.plan is not None
    assert {len(plan.algorithms) for plan in equal} == {1, 2}
    assert len(chosen.plan.algorithms) == 1
    assert strained_of(problem, chosen.plan) > min(strained_of(problem, plan) for plan in equal)
