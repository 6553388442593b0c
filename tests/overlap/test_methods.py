"""Every method against the definition, and against all plans of small graphs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.overlap import (
    METHODS,
    OVERLAP,
    Collective,
    Kind,
    Node,
    Plan,
    Problem,
    check,
    evaluate,
    lower_bound_ns,
    own_order,
    solve,
)
from planner.families.overlap.bounds import least_ns
from planner.solving.deadline import NEVER
from planner.solving.methods import REPLAN
from planner.solving.result import Status
from planner.testing import check_method, problems
from tests.overlap.slow import all_plans, brute_force, slow_makespan, slow_peak


@settings(max_examples=200)
@given(problems("overlap", 2), st.integers(0, 10**6))
def test_simulator_is_the_definition(problem: Problem, pick: int) -> None:
    plans = [own_order(problem)]
    for number, plan in enumerate(all_plans(problem)):
        if number > 400:
            break
        plans.append(plan)
    plan = plans[pick % len(plans)]
    evaluation = evaluate(problem, plan)
    assert evaluation.makespan_ns == slow_makespan(problem, plan)
    assert evaluation.peak_bytes == slow_peak(problem, plan)
    assert evaluation.exposed_ns == evaluation.makespan_ns - problem.computation_ns


@pytest.mark.parametrize("method", METHODS)
def test_no_plan_is_below_a_bound_or_above_the_optimum(method: str) -> None:
    """With limits of memory near the least; rules may find no order where there is one."""
    check_method(
        OVERLAP,
        method,
        problems("overlap", 2),
        least=brute_force,
        optimal=lambda _: method in ("auto", "exact"),
        examples=16,
    )


@settings(max_examples=100)
@given(problems("overlap", 6))
def test_of_larger_graphs_none_is_slower_than_its_own_order(problem: Problem) -> None:
    own = solve(problem, method="own_order").objective_ns
    for method in ("greedy", "search"):
        result = solve(problem, method=method).objective_ns
        assert own is None or (result is not None and result <= own)


@settings(max_examples=100)
@given(problems("overlap"), st.data())
def test_least_time_is_a_share_of_any_transfer(problem: Problem, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(problem.kinds))
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    merged = kind.time_ns(sum(sizes))
    most, count = data.draw(st.integers(sum(sizes), 60)), data.draw(st.integers(len(sizes), 5))
    if kind.mergeable:
        assert sum(least_ns(kind, size, most, count) for size in sizes) <= merged
    else:
        assert least_ns(kind, sizes[0], most, count) == kind.time_ns(sizes[0])


def test_collectives_of_no_bytes_may_travel_as_one() -> None:
    kind = Kind("k", "0", ((0, 100),))
    nodes = [Node("start"), Node("wait", (0,)), Node("start 2"), Node("wait 2", (2,))]
    both = (Collective(0, 1, 0, 0), Collective(2, 3, 0, 0))
    problem = Problem(nodes=nodes, kinds=[kind], collectives=both)
    assert solve(problem).objective_ns == 100
    assert lower_bound_ns(problem, NEVER)[0] <= 100
    alone = Problem(nodes=nodes[:2], kinds=[kind], collectives=both[:1])
    assert lower_bound_ns(alone, NEVER)[0] == 100


def test_a_plan_of_another_graph_is_left_aside() -> None:
    problem = Problem(nodes=[Node("a"), Node("b", (0,), 5)])
    other = Plan((1, 0))
    assert solve(problem, method="search", start=other).plan == Plan((0, 1))
    result = solve(problem, method=REPLAN, start=other)
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("start_plan",)


def test_a_search_does_not_use_up_the_time_on_a_small_graph() -> None:
    """Of two transfers there are few ways, however long it may search: this comes back at once."""
    nodes = [Node("prepare", (), 5), Node("a", (0,)), Node("wait a", (1,)), Node("b", (0,))]
    nodes += [Node("wait b", (3,)), Node("use", (2, 4), 7)]
    collectives = [Collective(1, 2, 0, 50, pack_ns=1), Collective(3, 4, 0, 50, pack_ns=1)]
    kind = Kind("all_gather", "0", ((0, 10), (100, 20)))
    problem = Problem(nodes=nodes, kinds=[kind], collectives=collectives)
    result = solve(problem, method="search", time_limit=10**6)
    assert result.status is Status.FEASIBLE


def test_a_search_merges_nothing_that_waits_for_itself() -> None:
    """The third starts when the first has been waited for: together both would wait for ever."""
    needed = ((), (0,), (0, 1), (2,), (1, 3), (3, 4))
    nodes = [Node(f"node {place}", after) for place, after in enumerate(needed)]
    ends = ((0, 2, 0), (1, 4, 1), (3, 5, 1))
    sent = [Collective(start, wait, 0, size) for start, wait, size in ends]
    kind = Kind("k", "0", ((0, 0), (4, 1)))
    problem = Problem(nodes=nodes, kinds=[kind], collectives=sent)
    assert solve(problem, method="search").objective_ns == 2 == brute_force(problem)


def test_a_search_merges_what_may_be_merged_only() -> None:
    """Gathers of two kinds; those of the second may not be sent together."""
    nodes, gathers = [], []
    sizes = ((1, 12, 5), (1, 17, 0), (0, 8, 5), (0, 6, 0), (0, 16, 0), (0, 18, 0))
    for place, (kind, size, packing) in enumerate(sizes):
        start, before = 3 * place, (3 * place - 1,) if place else ()
        nodes += [Node("start"), Node("wait", (start,)), Node("use", (*before, start + 1))]
        gathers.append(Collective(start, start + 1, kind, size, packing))
    kinds = [Kind("together", "0", ((0, 100),)), Kind("apart", "1", ((0, 100),), mergeable=False)]
    problem = Problem(nodes=nodes, kinds=kinds, collectives=gathers)
    result = solve(problem, method="search")
    assert result.plan is not None
    check(problem, result.plan)
    assert {gathers[group[0]].kind for group in result.plan.merged} <= {0}
