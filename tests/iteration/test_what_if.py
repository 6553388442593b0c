"""Whole iterations on other networks, priced apart: scenarios, sweeps, advice, explanations."""

from dataclasses import replace
from fractions import Fraction
from threading import Event

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner.families import iteration
from planner.families.iteration import (
    ITERATION,
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
from planner.families.iteration.sensitivity import Knob, SweepPoint, sweep
from planner.model.clusters import Cluster, Nic, scaled_cluster
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph
from planner.model.measured import Measured, MeasuredNetwork
from planner.model.topologies import Rails
from planner.model.validation import MAX_VALUE
from planner.solving.advice import advise
from planner.solving.deadline import NEVER, Deadline
from planner.solving.scenarios import Scenario
from tests.iteration import pricing
from tests.iteration.iteration_strategies import problems
from tests.iteration.making import chain, on_switch
from tests.iteration.pricing import lasts
from tests.present import present

MEBIBYTE = 2**20
KNOBS: tuple[Knob, ...] = ("bandwidth", "startup")
FEW = (Fraction(1, 4), Fraction(1), Fraction(3))


@st.composite
def spread_problems(draw: st.DrawFn, *, one_order: bool = False) -> Problem:
    problem = draw(problems(max_parameters=3, one_order=one_order))
    ops = (replace(op, spread_ns=draw(st.integers(0, 30))) for op in problem.graph.ops)
    return replace(problem, graph=Graph(tuple(ops), problem.graph.parameters))


def takes(problem: Problem, plan: Plan, scenario: Scenario) -> Fraction:
    """What a plan lasts in a scenario."""
    return lasts(ITERATION.perturb(problem, scenario), plan)


def cost_of(problem: Problem, method: str) -> int | None:
    try:
        return iteration.solve(problem, method=method).objective_ns
    except NotApplicableError:  # around failures no library has a way
        return None


def two_layers(compute: int) -> Problem:
    """Two layers on two workers; a byte takes a nanosecond in an all-reduce."""
    graph = chain((compute, compute, 2 * MEBIBYTE), (compute, compute, 4 * MEBIBYTE))
    return Problem(graph, on_switch(2, 0), modes=("replicated",))


def large() -> Problem:
    """One whose start-ups may not be twice as long."""
    return replace(two_layers(MEBIBYTE), cluster=on_switch(2, MAX_VALUE // 64 * 5))


def test_all_of_a_network_is_another() -> None:
    nic = Nic(Fraction(1000), 40, 2, 8)
    cluster = Cluster("r", "", 3, Rails(3, 2, Fraction(5000), 12), nic)
    scenario = Scenario(Fraction(2), Fraction(1, 2), Fraction(3), Fraction(1, 2))
    other = ITERATION.perturb(Problem(chain((10, 10, 8)), cluster), scenario)
    assert other.cluster.nic == Nic(Fraction(3000), 20, 2, 4)
    assert other.cluster.topology == Rails(3, 2, Fraction(15000), 6)
    assert [op.duration_ns for op in other.graph.ops] == [20, 30]
    network = MeasuredNetwork((Measured("all_reduce", 3, 1, ((10, 100), (20, 200))),))
    shared = on_switch(3, 40, shared_bytes_per_s=Fraction(700), network=network)
    for knob, rate, points in (
        ("startup", 700, ((10, 200), (20, 300))),
        ("bandwidth", 1400, ((10, 100), (20, 150))),
    ):
        changed = scaled_cluster(shared, **{knob: Fraction(2)})
        assert changed.shared_bytes_per_s == rate
        assert present(changed.network).tables[0].points == points


# ---
# Sweeps.


@pytest.mark.slow
@settings(max_examples=5)
@given(problems())
def test_points_are_those_of_plans_made_for_that_network(problem: Problem) -> None:
    """Each factor comes once, and they rise."""
    found = alternatives(problem, NEVER)
    kept = best_of(problem, found, 0.0).plan
    told: list[tuple[str, int, int]] = []
    factors = *FEW[::-1], *FEW
    sweeps = sweep(problem, found, factors, progress=lambda *what: told.append(what))
    assert (sweeps is None) == (kept is None) == (not told)
    if kept is None:
        return
    assert told == [(f"planning with another {knob}", n, 3) for knob in KNOBS for n in (1, 2, 3)]
    for knob in KNOBS:
        points: tuple[SweepPoint, ...] = getattr(sweeps, knob)
        assert [one.factor for one in points] == list(FEW)
        for point in points:
            cluster = scaled_cluster(problem.cluster, **{knob: point.factor})
            other = replace(problem, cluster=cluster)
            assert point.plan_ns == lasts(other, kept)
            anew = iteration.solve(other)
            others = [lasts(other, one.plan) for one in found if one.plan is not None]
            best_ns = min(present(anew.objective_ns), *others)
            assert point.best_ns == best_ns == lasts(other, point.best)
            # Solving may raise its bound further, where plans are not near it.
            computation = present(anew.evaluation).computation_ns
            assert computation <= present(point.bound_ns) <= (anew.lower_bound_ns or 0)
            assert point.ddp_ns == cost_of(other, "ddp")


# ---
# Advice.


@pytest.mark.parametrize("compute", [MEBIBYTE, 10 * MEBIBYTE, 1000 * MEBIBYTE])
def test_ddp_is_priced_with_its_barrier_and_its_best_buckets(compute: int) -> None:
    """The last layer's 4 MiB are ready first; then come the first layer's 2 MiB, and a barrier."""
    problem = two_layers(compute)
    found = present(advise(ITERATION, problem, iteration.solve(problem), NEVER))
    apart = max(compute + 4 * MEBIBYTE, 2 * compute) + 2 * MEBIBYTE + 2 * compute
    together = 2 * compute + 6 * MEBIBYTE + 2 * compute
    assert found.ddp_ns == apart <= together
    assert found.bucket_mb is None
    assert found.keep_ddp == (compute > MEBIBYTE)


# ---
# The parts of an iteration add up, and at the factors named the other plan really wins.


Cost = AffineCost | TableCost


def explained(problem: Problem) -> tuple[Plan, Explanation, tuple[Alternative, ...]]:
    found = alternatives(problem, NEVER)
    plan = present(best_of(problem, found, 0.0).plan)
    return plan, explain(problem, plan, found), found


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
        costs = {how: pricing.takes(known[how], transfer) for how in known if how[0] == name}
        return replace(transfer, depth=min(costs, key=costs.__getitem__)[1])

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


RAILS = Rails(hosts=4, accelerators=3, link_bytes_per_s=Fraction(3 * 10**9), link_startup_ns=0)
NIC = Nic(Fraction(2 * 10**9), 0, per_machine=3)


@pytest.mark.slow
@settings(max_examples=30)
@given(problems(capped=False))
# Once the runner-up is shorter than the plan, a third algorithm is shorter than both for a while.
@example(Problem(chain((0, 4, 3), (3, 3, 23)), Cluster("c", "a test", 4, RAILS, NIC)))
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
    assert not explanation.timed_out
    cancelled = Event()
    cancelled.set()
    late = explain(problem, plan, found, Deadline(None, cancelled))
    assert (late.changes, late.timed_out) == ((), True)  # not said to be impossible
    assert not wins(problem, plan, other, found)
    assert len({one.what for one in explanation.changes}) == len(explanation.changes)
    for change in explanation.changes:
        at = Fraction(change.factor)
        assert Fraction(1, 1024) <= at <= 1024
        assert wins(problem, plan, other, found, **{change.what: at})
        # A thousandth of the last power of two nearer to 1 it does not win.
        powers = [Fraction(2) ** exponent for exponent in range(-10, 11)]
        last = max(power for power in powers if power < at or power == at <= 1)
        near = at + (-last if at > 1 else last) / 1024
        assert not wins(problem, plan, other, found, **{change.what: near})


def test_a_single_worker_has_nothing_to_explain_and_factors_may_leave_the_range_of_times() -> None:
    graph = chain((10, 10, 1000))
    _, explanation, found = explained(Problem(graph, on_switch(1, 5)))
    assert explanation.exposed_bytes_ns == explanation.exposed_startup_ns == 0
    assert {one.synchronisation.algorithm for one in found} == {"none"}
    assert explanation.changes == ()
    _, explanation, _ = explained(Problem(graph, on_switch(6, 2**53, message_ns=1)))
    assert explanation.exposed_startup_ns >= 2 * 2**53


def test_hidden_start_ups_are_not_counted() -> None:
    """w2 travels while b1 computes; only w1's bytes (1.5 µs by ring) and start-ups are seen."""
    graph = chain((1000, 100_000, 1000), (1000, 1000, 20_000))
    problem = Problem(graph, on_switch(4, 50), algorithms=("ring",), modes=("replicated",))
    plan, explanation, _ = explained(problem)
    assert len(plan.transfers) == 2
    assert (explanation.exposed_bytes_ns, explanation.exposed_startup_ns) == (1500, 6 * 50)
