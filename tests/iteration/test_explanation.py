"""The parts of an iteration add up, and at the factors named the other plan really wins."""

from dataclasses import replace
from fractions import Fraction
from itertools import count
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
from planner.model.topologies import Rails
from planner.solving.deadline import Deadline
from tests.iteration.iteration_strategies import problems
from tests.iteration.making import chain, on_switch
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


def priced(problem: Problem, plan: Plan, **factors: Fraction) -> Fraction:
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
def test_where_the_time_goes_and_where_the_other_plan_wins(problem: Problem) -> None:
    plan, explanation, found = explained(problem)
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
    if factor < 1:
        return -_power(1 / factor)
    return next(exponent for exponent in count() if Fraction(2) ** exponent >= factor)


GRAPH = chain((10, 10, 1000))


def on(machines: int, startup_ns: int, message_ns: int = 0) -> Problem:
    return Problem(GRAPH, on_switch(machines, startup_ns, message_ns=message_ns))


def on_rails() -> Problem:
    rails, nic = Rails(3, 2, Fraction(10**15)), Nic(Fraction(10**9), 10, 2)
    return Problem(GRAPH, Cluster("c", "a test", 3, rails, nic))


def alternative(problem: Problem, algorithm: str, mode: str = "replicated") -> Alternative:
    found = alternatives(replace(problem, algorithms=(algorithm,)), Deadline(None))
    return next(one for one in found if one.mode == mode)


BY_HAND: list[tuple[Problem, str, str, list[AffineCost], dict[str, tuple[float, float]]]] = [
    # Of one and the same volume, the algorithm of more steps can never win.
    (
        on(6, 100),
        "ps",
        "ring",
        [AffineCost(100, Fraction(5, 6)), AffineCost(500, Fraction(5, 6))],
        {},
    ),
    # A half of the direct exchange: 10 ns + 4 messages of 20 ns. By ring 5·10 ns: better while 40
    # times the start-ups' factor is less than 80 times the messages'. Times are rounded up to whole
    # nanoseconds, of which one is 1/40 or 1/80 of a factor.
    (
        on(6, 10, 20),
        "ring",
        "ps",
        [AffineCost(50, Fraction(5, 6)), AffineCost(90, Fraction(5, 6))],
        {"startup": (2, 2.1), "message": (0.45, 0.5)},
    ),
    # A dearer message can make the ring win: 50 ns of start-ups against 10 and 4 messages of 5.
    (
        on(6, 10, 5),
        "ps",
        "ring",
        [AffineCost(30, Fraction(5, 6)), AffineCost(50, Fraction(5, 6))],
        {"startup": (0.45, 0.5), "message": (2, 2.1)},
    ),
    # 2·(50·s + 416⅔/b) against 2·(10·s + 666⅔/b): equal at s·b = 6¼.
    (
        on_rails(),
        "ring",
        "ps",
        [AffineCost(50, Fraction(5, 12)), AffineCost(10, Fraction(2, 3))],
        {"startup": (6.2, 6.4), "bandwidth": (6.2, 6.4)},
    ),
]


@pytest.mark.parametrize(("problem", "first", "second", "costs", "factors"), BY_HAND)
def test_the_factors_by_hand(
    problem: Problem,
    first: str,
    second: str,
    costs: list[AffineCost],
    factors: dict[str, tuple[float, float]],
) -> None:
    known = alternative(problem, first), alternative(problem, second)
    assert [each.synchronisation.half for each in known] == costs
    assert known[0].plan is not None
    explanation = explain(problem, known[0].plan, known)
    assert explanation.runner_up == known[1]
    assert not explanation.timed_out
    assert {change.what for change in explanation.changes} == set(factors)
    for change in explanation.changes:
        low, high = factors[change.what]
        assert low < change.factor < high
    cancelled = Event()
    cancelled.set()
    late = explain(problem, known[0].plan, known, Deadline(None, cancelled))
    assert (late.changes, late.timed_out) == ((), True)  # not said to be impossible


def test_no_plan_wins_where_another_algorithm_does_as_well() -> None:
    """A half takes 140 ns by ring, 20 + 240 ns by direct exchange, 60 ns by halving."""
    problem = on(8, 20, 40)
    ring, direct = alternative(problem, "ring"), alternative(problem, "ps")
    halving = alternative(problem, "halving_doubling")
    assert ring.plan is not None
    for candidates, startup, message in (
        ((ring, direct), (2, 2.1), (0.45, 0.5)),
        ((ring, direct, halving), (5.9, 6.1), (0.15, 0.17)),
    ):
        found = {one.what: one.factor for one in changes(problem, ring.plan, direct, candidates)}
        assert startup[0] < found["startup"] < startup[1]
        assert message[0] < found["message"] < message[1]


def test_a_single_worker_has_no_other_way_that_costs_something_else() -> None:
    _, explanation, found = explained(on(1, 5))
    assert explanation.exposed_bytes_ns == explanation.exposed_startup_ns == 0
    assert {one.synchronisation.algorithm for one in found} == {"none"}
    assert explanation.changes == ()


def test_factors_that_leave_the_range_of_times_are_tried_all_the_same() -> None:
    _, explanation, _ = explained(on(6, 2**53, 1))
    assert explanation.exposed_startup_ns >= 2 * 2**53


def test_hidden_start_ups_are_not_counted() -> None:
    """w2 travels while b1 computes; only w1's bytes (1.5 µs by ring) and start-ups are seen."""
    graph = chain((1000, 100_000, 1000), (1000, 1000, 20_000))
    problem = Problem(graph, on_switch(4, 50), algorithms=("ring",), modes=("replicated",))
    plan, explanation, _ = explained(problem)
    assert len(plan.transfers) == 2
    assert explanation.exposed_bytes_ns == 1500
    assert explanation.exposed_startup_ns == 6 * 50
