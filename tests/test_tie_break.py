"""Among plans of equal cost the one with the fewest transfers, or the least sensitive one."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner import AffineCost, InvalidInputError, TableCost
from planner.families import caramel, ibatch, iteration
from planner.families.caramel.exact_whole import fewest_whole
from planner.families.caramel.windows import Windows
from planner.families.drizzle import DRIZZLE
from planner.model.clusters import Cluster, Nic
from planner.model.contention import Interference
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.topologies import Rails
from planner.solving import tie_break
from planner.solving.deadline import NEVER
from planner.solving.simulator import TimedTransfer, simulate
from tests.caramel.exact_oracles import price, whole_plans
from tests.caramel.graph_strategies import graphs
from tests.oracles import all_boundaries, objective
from tests.present import present
from tests.solved import Solved
from tests.strategies import affine_costs, problems, table_costs
from tests.test_numbers import PROBLEMS


@settings(max_examples=1200)
@given(problems(max_layers=7, objective="makespan"))
def test_ibatch_has_the_fewest_batches_of_all_best_plans(problem: ibatch.Problem) -> None:
    result = ibatch.solve(problem)
    if result.plan is None:
        return
    prices = {bounds: objective(problem, bounds) for bounds in all_boundaries(problem)}
    least = min(prices.values())
    fewest = min(len(bounds) for bounds, price in prices.items() if price == least) - 1
    assert len(result.plan.batches) == fewest
    assert result.lower_bound_ns == result.objective_ns == least


@settings(max_examples=1200)
@given(graphs(max_parameters=4), st.one_of(affine_costs(), table_costs()))
def test_caramel_has_the_fewest_transfers_of_whole_parameters(
    graph: Graph, cost: AffineCost | TableCost
) -> None:
    problem = caramel.Problem(graph, cost)
    plan, least, _ = Solved.of(caramel.solve(problem, method="exact"))
    known = problem.windows
    plans = (groups for groups in whole_plans(known) if price(known, cost, groups) <= least)
    assert len(plan.groups) == min(map(len, plans))


def test_two_transfers_become_one_where_more_bytes_cost_less() -> None:
    """The first two do not fit together, all three do."""
    ops = Op("read", 0, "forward"), Op("made", 0, "backward", after=("read",))
    parameters = tuple(Parameter(f"w{size}", size, ("made",), ("read",)) for size in (55, 2, 4))
    cost = TableCost(((0, 0), (55, 0), (57, 1), (59, 1), (61, 0), (62, 0)))
    result = caramel.solve(caramel.Problem(Graph(ops, parameters), cost), method="exact")
    assert (result.objective_ns, len(present(result.plan).groups)) == (0, 1)


def test_of_equally_fast_algorithms_the_one_counts_that_can_merge_more() -> None:
    """Pushes and pulls are two transfers as they are found; two all-reduces become one."""
    ops = (
        *(Op("f0", 4, "forward"), Op("f1", 1, "forward", ("f0",))),
        *(Op("f2", 0, "forward", ("f1",)), Op("b0", 0, "backward", ("f0",))),
        Op("b1", 0, "backward", ("f0", "b0")),
    )
    parameters = Parameter("p0", 1, ("b0",), ("f1",)), Parameter("p1", 5, ("b0",), ("f2",))
    nic = Nic(Fraction(10**9), 0, per_machine=3)
    cluster = Cluster("one host", "tests", 1, Rails(1, 3, Fraction(3 * 10**9), 0), nic)
    graph = Graph(ops, parameters)
    result = iteration.solve(iteration.Problem(graph, cluster))
    assert (result.objective_ns, len(present(result.plan).transfers)) == (5, 1)


def test_fewest_whole_transfers_end_within_every_limit() -> None:
    """Sent alone the second gradient is in time; the fewer the transfers, the later the last."""
    windows = Windows((4, 1, 6), (0, 3, 9), (10, 25, 2), 10, 25)
    cost = AffineCost(2, Fraction(1))
    prices = [(price(windows, cost, groups), len(groups)) for groups in whole_plans(windows)]
    least, counts = min(prices)[0], []
    for most in range(least - 1, least + 20):
        found = fewest_whole(windows, cost, most, below=4, deadline=NEVER)
        if found is not None:
            assert price(windows, cost, found) <= most
        inside = [count for time, count in prices if time <= most]
        assert (found and len(found)) == min(inside, default=None)
        counts.append(found and len(found))
    assert {None, 1, 2} <= set(counts)


def test_under_contention_the_plan_stays_as_it_is() -> None:
    cost = AffineCost(0, Fraction(1))
    busy = Interference(ns_per_byte=Fraction(3, 10), delay_ns=2)
    problem = ibatch.Problem(compute_ns=[1, 0], layer_bytes=[0, 1], cost=cost, interference=busy)
    robust = ibatch.solve(problem, tie_break="robust")
    assert robust.plan == ibatch.solve(problem, tie_break=None).plan


def test_baselines_keep_to_their_rule() -> None:
    """Which costs as much."""
    problem = ibatch.Problem(startup_ns=0, transfer_ns=[1, 1], compute_ns=[0, 100])
    for method, batches in ("auto", 1), ("layer_by_layer", 2):
        assert len(present(ibatch.solve(problem, method=method).plan).batches) == batches


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="tie_break: expected one of simple, robust"):
        ibatch.solve(PROBLEMS["ibatch"], tie_break="best")  # type: ignore[arg-type]
    with pytest.raises(NotApplicableError, match="robust is not for problem drizzle"):
        DRIZZLE.solve(PROBLEMS["drizzle"], tie_break="robust")


def test_requests_choose_among_equal_plans_at_nominal_times_only() -> None:
    spread: dict[str, Any] = {
        "problem": "ibatch",
        "compute_ns": [20, 79, 30],
        "layer_bytes": [27, 93, 10],
        "cost_table": [[10, 32], [163, 46]],
        "spread_ns": [9, 9, 9],  # whose mean would count otherwise
    }
    assert "prospect" in planner.solve(spread)
    assert "prospect" not in planner.solve({**spread, "tie_break": "robust"})
    for field, value in (("scenarios", [{}]), ("outlook", "mean")):
        refused = planner.solve({**spread, field: value, "tie_break": "robust"})["error"]
        assert refused["path"] == field
        assert "not with tie_break" in refused["message"]


times = st.integers(0, 20)
Pair = tuple[int, int]


@given(
    st.lists(times, min_size=1, max_size=4),
    st.lists(times, min_size=1, max_size=4),
    st.lists(st.tuples(times, times, st.integers(0, 3)), max_size=5),
    st.sampled_from([tie_break.NOMINAL, *tie_break.DELAYS, tie_break.Delay(5, 1)]),
)
def test_a_strain_multiplies_what_the_simulator_is_given(
    backward: list[int],
    forward: list[int],
    drawn: list[tuple[int, int, int]],
    delay: tie_break.Delay,
) -> None:
    slower, longer = delay
    sent = [(ready, duration, min(by, len(forward) - 1)) for ready, duration, by in drawn]
    transfers = [
        TimedTransfer(0, slower * duration, by, not_before_ns=longer * ready)
        for ready, duration, by in sent
    ]
    slow, late = ([longer * time for time in times] for times in (backward, forward))
    iteration = simulate(slow, late, transfers)
    steps = [tie_break.Step(ready, duration, sum(forward[by:])) for ready, duration, by in sent]
    computed = sum(backward) + sum(forward)
    assert tie_break.delayed_makespan(delay, steps, computed) == iteration.end_ns
    ends = [tie_break.delayed_makespan(one, steps, computed) for one in tie_break.DELAYS]
    assert [*tie_break.delayed_makespans(steps, computed)] == ends
    # Slow transfers count before slow computation.
    assert tie_break.delayed_makespans([tie_break.Step(0, 10, 0)], 0) == (30, 20)
    assert tie_break.delayed_makespans([], 10) == (20, 30)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=8), st.integers(0, 7))
def test_the_search_ends_at_the_best_of_the_plans_there_are(plans: list[Pair], start: int) -> None:
    """Plans are what they last under the two strains; whoever is asked tries all of them."""
    value = 3
    known = [(2 * value + first, 2 * value + second) for first, second in plans]

    def lasts(plan: Pair, delay: tie_break.Delay) -> int:
        return plan[tie_break.DELAYS.index(delay)]

    def attempt(limits: list[tie_break.Limit], last: tie_break.Limit) -> tuple[Pair | None, int]:
        fitting = (one for one in known if all(lasts(one, at) <= most for at, most in limits[1:]))
        best = min(fitting, key=lambda plan: lasts(plan, last.delay))
        reached = lasts(best, last.delay)
        return (best, reached) if reached <= last.most_ns else (None, reached)

    begin = known[start % len(known)]
    assert tie_break.most_robust(begin, value, lasts, attempt, NEVER) == min(known)  # type: ignore[arg-type]
