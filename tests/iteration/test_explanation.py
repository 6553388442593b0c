"""The parts of an iteration add up, and at the factors named the other plan really wins."""

from dataclasses import replace
from fractions import Fraction
from threading import Event

import pytest
from hypothesis import given, settings

from planner.families.iteration import (
    MIXED,
    Alternative,
    Explanation,
    Plan,
    Problem,
    Synchronisation,
    Transfer,
    alternatives,
    best_of,
    explain,
)
from planner.families.iteration.plan import How
from planner.families.iteration.why import changes
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost, TableCost
from planner.model.graphs import Graph, Op, Parameter
from planner.model.topologies import Rails, Switch
from planner.solving.deadline import Deadline
from tests.iteration.iteration_strategies import problems
from tests.iteration.pricing import lasts, takes

Cost = AffineCost | TableCost


def explained(problem: Problem) -> tuple[Plan, Explanation, tuple[Alternative, ...]]:
    found = alternatives(problem, Deadline(None))
    result = best_of(problem, found, 0.0)
    assert result.plan is not None
    return result.plan, explain(problem, result.plan, found), found


def elsewhere(
    problem: Problem,
    how: How,
    startup: Fraction = Fraction(1),
    message: Fraction = Fraction(1),
    bandwidth: Fraction = Fraction(1),
) -> Synchronisation:
    """An option where start-ups, further messages and all speeds are multiplied."""
    cluster = problem.cluster
    plain = replace(problem, cluster=replace(cluster, nic=replace(cluster.nic, message_ns=0)))
    known, starting = problem.costs[how], plain.costs[how]

    def changed(cost: Cost, starts: Cost) -> AffineCost:
        further = cost.startup_ns - starts.startup_ns
        return AffineCost(
            round(starts.startup_ns * startup + further * message), cost.ns_per_byte / bandwidth
        )

    half = changed(known.half, starting.half)
    return replace(known, half=half, whole=changed(known.all_reduce, starting.all_reduce))


def priced(problem: Problem, plan: Plan, **factors: Fraction) -> int:
    """Price a plan on another network, by the oracle, each transfer at the depth that suits it."""
    known = {how: elsewhere(problem, how, **factors) for how in problem.costs}

    def best(transfer: Transfer) -> Transfer:
        name, _ = plan.how(transfer)
        depths = [depth for algorithm, depth in known if algorithm == name]
        return replace(
            transfer, depth=min(depths, key=lambda depth: takes(known[name, depth], transfer))
        )

    return lasts(problem, replace(plan, transfers=tuple(map(best, plan.transfers))), known)


def wins(
    problem: Problem,
    plan: Plan,
    other: Alternative,
    found: tuple[Alternative, ...],
    **factors: Fraction,
) -> bool:
    """Whether a plan is shorter than the one chosen, and by no algorithm of its mode still is."""
    assert other.plan is not None
    own, name = priced(problem, other.plan, **factors), other.synchronisation.algorithm
    sent = tuple(replace(one, algorithm=None, depth=1) for one in other.plan.transfers)
    for one in found:
        rival = one.synchronisation.algorithm
        if MIXED not in (rival, name) and one.mode == other.mode and one.plan:
            by_rival = replace(other.plan, algorithm=rival, transfers=sent)
            if rival != name and priced(problem, by_rival, **factors) < own:
                return False
    return own < priced(problem, plan, **factors)


@pytest.mark.slow
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
    # The same plan: no transfer is cut otherwise because start-ups are free.
    none = {"startup": Fraction(0), "message": Fraction(0)}
    prompt = {how: elsewhere(problem, how, **none) for how in problem.costs}
    assert explanation.exposed_bytes_ns == lasts(problem, plan, prompt) - computation


@pytest.mark.slow
@settings(max_examples=30)
@given(problems(capped=False))
def test_at_the_factor_the_other_plan_wins_and_before_it_does_not(problem: Problem) -> None:
    plan, explanation, found = explained(problem)
    other = explanation.runner_up
    if other is None:
        assert not explanation.changes
        return
    assert not wins(problem, plan, other, found)
    assert len({one.what for one in explanation.changes}) == len(explanation.changes)
    for change in explanation.changes:
        at = Fraction(change.factor)
        assert Fraction(1, 1024) <= at <= 1024
        assert wins(problem, plan, other, found, **{change.what: at})
        # A thousandth of the last power of two nearer to 1 it does not win.
        power = Fraction(2) ** (_power(at) - (at > 1))
        near = at - power / 1024 if at > 1 else at + power / 1024
        assert not wins(problem, plan, other, found, **{change.what: near})


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


def on_switch(machines: int, startup_ns: int, message_ns: int = 0) -> Problem:
    """The graph on machines with NICs of a byte a nanosecond."""
    nic = Nic(Fraction(10**9), startup_ns, message_ns=message_ns)
    return Problem(GRAPH, Cluster("c", "a test", machines, Switch(machines), nic))


def alternative(problem: Problem, algorithm: str, mode: str = "replicated") -> Alternative:
    found = alternatives(replace(problem, algorithms=(algorithm,)), Deadline(None))
    return next(one for one in found if one.mode == mode)


def test_no_change_where_one_wins_by_both() -> None:
    """Of one and the same volume, the algorithm of more steps can never win."""
    problem = on_switch(6, 100)
    direct, ring = alternative(problem, "ps"), alternative(problem, "ring")
    assert direct.plan is not None
    explanation = explain(problem, direct.plan, (direct, ring))
    assert explanation.runner_up == ring
    assert explanation.changes == ()


def test_the_factors_by_hand() -> None:
    """A half of the direct exchange: 10 ns + 4 messages of 20 ns and 5/6 ns a byte.

    By ring 5·10 ns and the same volume: better while 40 times the start-ups' factor is less than 80
    times the messages'.
    """
    problem = on_switch(6, 10, message_ns=20)
    ring, direct = alternative(problem, "ring"), alternative(problem, "ps")
    assert direct.synchronisation.half == AffineCost(90, Fraction(5, 6))
    assert ring.synchronisation.half == AffineCost(50, Fraction(5, 6))
    assert ring.plan is not None
    found = {
        change.what: change.factor for change in explain(problem, ring.plan, (ring, direct)).changes
    }
    assert set(found) == {"startup", "message"}
    # Times are rounded up to whole nanoseconds, of which one is 1/40 or 1/80 of a factor.
    assert 2 < found["startup"] < 2.1
    assert 0.45 < found["message"] < 0.5


def test_fewer_steps_of_more_bytes_by_hand() -> None:
    """On three hosts of two a half takes 50 ns and 5/12 ns a byte by ring, 10 ns and 2/3 by ps."""
    rails, nic = Rails(3, 2, Fraction(10**15)), Nic(Fraction(10**9), 10, 2)
    problem = Problem(GRAPH, Cluster("c", "a test", 3, rails, nic))
    ring, few = alternative(problem, "ring"), alternative(problem, "ps")
    assert few.synchronisation.half == AffineCost(10, Fraction(2, 3))
    assert ring.synchronisation.half == AffineCost(50, Fraction(5, 12))
    assert ring.plan is not None
    found = {
        change.what: change.factor for change in explain(problem, ring.plan, (ring, few)).changes
    }
    # 2·(50·s + 416⅔/b) against 2·(10·s + 666⅔/b): equal at s·b = 6¼.
    assert set(found) == {"startup", "bandwidth"}
    assert 6.2 < found["startup"] < 6.4
    assert 6.2 < found["bandwidth"] < 6.4


def test_a_dearer_message_can_make_the_ring_win() -> None:
    """A half takes 50 ns of start-ups by ring, 10 ns and 4 messages of 5 ns by direct exchange."""
    problem = on_switch(6, 10, message_ns=5)
    direct, ring = alternative(problem, "ps"), alternative(problem, "ring")
    assert direct.plan is not None
    explanation = explain(problem, direct.plan, (direct, ring))
    found = {change.what: change.factor for change in explanation.changes}
    assert set(found) == {"startup", "message"}
    assert 0.45 < found["startup"] < 0.5
    assert 2 < found["message"] < 2.1


def test_what_time_left_out_is_not_said_to_be_impossible() -> None:
    problem = on_switch(6, 10, message_ns=5)
    direct, ring = alternative(problem, "ps"), alternative(problem, "ring")
    assert direct.plan is not None
    cancelled = Event()
    cancelled.set()
    late = explain(problem, direct.plan, (direct, ring), Deadline(None, cancelled))
    assert (late.changes, late.timed_out) == ((), True)
    assert not explain(problem, direct.plan, (direct, ring)).timed_out


def test_no_plan_wins_where_another_algorithm_does_as_well() -> None:
    """A half takes 140 ns by ring, 20 + 240 ns by direct exchange, 60 ns by halving."""
    problem = on_switch(8, 20, message_ns=40)
    ring, direct = alternative(problem, "ring"), alternative(problem, "ps")
    halving = alternative(problem, "halving_doubling")
    assert ring.plan is not None
    found = {
        change.what: change.factor for change in changes(problem, ring.plan, direct, (ring, direct))
    }
    assert 2 < found["startup"] < 2.1
    assert 0.45 < found["message"] < 0.5
    all_three = changes(problem, ring.plan, direct, (ring, direct, halving))
    found = {one.what: one.factor for one in all_three}
    assert 5.9 < found["startup"] < 6.1
    assert 0.15 < found["message"] < 0.17


def test_a_single_worker_has_no_other_way_that_costs_something_else() -> None:
    problem = Problem(GRAPH, Cluster("c", "a test", 1, Switch(1), Nic(Fraction(10**9), 5)))
    _, explanation, found = explained(problem)
    assert explanation.exposed_bytes_ns == explanation.exposed_startup_ns == 0
    assert {one.synchronisation.algorithm for one in found} == {"none"}
    assert explanation.changes == ()


def test_factors_that_leave_the_range_of_times_are_tried_all_the_same() -> None:
    problem = on_switch(6, 2**53, message_ns=1)
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
