"""The parts of an iteration add up, and at the factors named the other plan really wins."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings

from planner.clusters import Cluster, Nic
from planner.costs import AffineCost
from planner.deadline import Deadline
from planner.graphs import Graph, Op, Parameter
from planner.iteration import (
    Alternative,
    Explanation,
    Plan,
    Problem,
    Synchronisation,
    alternatives,
    best_of,
    explain,
)
from planner.topologies import Switch
from tests.iteration.iteration_strategies import problems
from tests.iteration.pricing import lasts


def explained(problem: Problem) -> tuple[Plan, Explanation, tuple[Alternative, ...]]:
    found = alternatives(problem, Deadline(None))
    result = best_of(problem, found, 0.0)
    assert result.plan is not None
    return result.plan, explain(problem, result.plan, found), found


def priced(
    problem: Problem, plan: Plan, startup: Fraction = Fraction(1), bandwidth: Fraction = Fraction(1)
) -> int:
    """Price a plan on another network, by the oracle."""
    known = problem.synchronisation(plan.algorithm)
    half = AffineCost(
        round(known.half.startup_ns * startup), Fraction(known.half.ns_per_byte) / bandwidth
    )
    return lasts(problem, plan, Synchronisation(known.algorithm, known.steps, half))


@settings(max_examples=30)
@given(problems(capped=False))
def test_where_the_time_goes(problem: Problem) -> None:
    plan, explanation, _ = explained(problem)
    computation = sum(op.duration_ns for op in problem.graph.ops)
    assert explanation.computation_ns == computation
    assert explanation.exposed_bytes_ns >= 0
    assert explanation.exposed_startup_ns >= 0
    parts = computation + explanation.exposed_bytes_ns + explanation.exposed_startup_ns
    assert parts == priced(problem, plan)
    free = priced(problem, plan, startup=Fraction(0))
    assert explanation.exposed_bytes_ns == free - computation


@settings(max_examples=30)
@given(problems(capped=False))
def test_at_the_factor_the_other_plan_wins_and_before_it_does_not(problem: Problem) -> None:
    plan, explanation, _ = explained(problem)
    other = explanation.runner_up
    if other is None:
        assert not explanation.changes
        return
    assert other.plan is not None
    assert priced(problem, plan) <= priced(problem, other.plan)
    assert len({one.what for one in explanation.changes}) == len(explanation.changes)
    for change in explanation.changes:
        at = Fraction(change.factor)
        assert Fraction(1, 1024) <= at <= 1024
        assert priced(problem, other.plan, **{change.what: at}) < priced(
            problem, plan, **{change.what: at}
        )
        # A thousandth of the last power of two nearer to 1 it is no shorter.
        power = Fraction(2) ** (_power(at) - (at > 1))
        near = at - power / 1024 if at > 1 else at + power / 1024
        assert priced(problem, other.plan, **{change.what: near}) >= priced(
            problem, plan, **{change.what: near}
        )


def _power(factor: Fraction) -> int:
    """The exponent of the first power of two, away from 1, that reaches a factor."""
    exponent = 0
    while factor > 1 and Fraction(2) ** exponent < factor:
        exponent += 1
    while factor < 1 and Fraction(2) ** exponent > factor:
        exponent -= 1
    return exponent


GRAPH = Graph(
    (Op("f", 10, "forward"), Op("b", 10, "backward", ("f",))),
    (Parameter("w", 1000, ("b",), ("f",)),),
)


def alternative(problem: Problem, algorithm: str, mode: str = "replicated") -> Alternative:
    found = alternatives(replace(problem, algorithms=(algorithm,)), Deadline(None))
    return next(one for one in found if one.mode == mode)


def test_no_change_where_one_wins_by_both() -> None:
    """Of one and the same volume, the algorithm of more steps can never win."""
    nic = Nic(Fraction(10**9), 100)
    problem = Problem(GRAPH, Cluster("c", "a test", 6, Switch(6), nic))
    direct, ring = alternative(problem, "ps"), alternative(problem, "ring")
    assert direct.plan is not None
    explanation = explain(problem, direct.plan, (direct, ring))
    assert explanation.runner_up == ring
    assert explanation.changes == ()


def test_the_factor_by_hand() -> None:
    """Half of ring: 50 ns of start-ups and 5/6 ns a byte; of direct exchanges 10 + 4·20 and 5/6.

    Ring wins, and neither knob changes that. Halving and doubling takes 30 ns and 7/4 ns a byte.
    """
    nic = Nic(Fraction(10**9), 10, message_ns=20)
    problem = Problem(GRAPH, Cluster("c", "a test", 6, Switch(6), nic))
    ring, direct = alternative(problem, "ring"), alternative(problem, "ps")
    assert ring.plan is not None
    assert explain(problem, ring.plan, (ring, direct)).changes == ()
    few = alternative(problem, "halving_doubling")
    assert few.synchronisation.half == AffineCost(30, Fraction(7, 4))
    assert ring.synchronisation.half == AffineCost(50, Fraction(5, 6))
    found = {one.what: one.factor for one in explain(problem, ring.plan, (ring, few)).changes}
    # 2·(50·s + 833⅓/b) against 2·(30·s + 1750/b): equal at s/b = 45⅚.
    assert set(found) == {"startup", "bandwidth"}
    # Times are rounded up to whole nanoseconds, of which one is 1/40 of a factor of start-ups.
    assert 45 < found["startup"] < 47
    assert 45 < found["bandwidth"] < 47


def test_a_single_worker_has_no_other_way_that_costs_something_else() -> None:
    problem = Problem(GRAPH, Cluster("c", "a test", 1, Switch(1), Nic(Fraction(10**9), 5)))
    _, explanation, found = explained(problem)
    assert explanation.exposed_bytes_ns == explanation.exposed_startup_ns == 0
    assert {one.synchronisation.algorithm for one in found} == {"none"}
    assert explanation.changes == ()


def test_factors_that_leave_the_range_of_times_are_tried_all_the_same() -> None:
    nic = Nic(Fraction(10**9), 2**53, message_ns=1)
    problem = Problem(GRAPH, Cluster("c", "a test", 6, Switch(6), nic))
    _, explanation, _ = explained(problem)
    assert explanation.exposed_startup_ns >= 2 * 2**53


def test_hidden_start_ups_are_not_counted() -> None:
    """w2 travels while b1 computes; only w1's bytes (1.5 µs by ring) and start-ups are seen."""
    graph = Graph(
        (
            Op("f1", 1000, "forward"),
            Op("f2", 1000, "forward", ("f1",)),
            Op("b2", 1000, "backward", ("f2",)),
            Op("b1", 100_000, "backward", ("b2",)),
        ),
        (Parameter("w1", 1000, ("b1",), ("f1",)), Parameter("w2", 20_000, ("b2",), ("f2",))),
    )
    cluster = Cluster("c", "a test", 4, Switch(4), Nic(Fraction(10**9), 50))
    problem = Problem(graph, cluster, algorithms=("ring",), modes=("replicated",))
    plan, explanation, _ = explained(problem)
    assert len(plan.transfers) == 2
    assert explanation.exposed_bytes_ns == 1500
    assert explanation.exposed_startup_ns == 6 * 50
