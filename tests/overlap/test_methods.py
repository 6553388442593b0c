"""Every method against the definition, and against all plans of small graphs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.overlap import (
    METHODS,
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
    with_limit,
)
from planner.families.overlap.bounds import least_ns
from planner.families.overlap.exact import solve_exact
from planner.solving.deadline import NEVER, Incumbent
from planner.solving.methods import REPLAN
from planner.solving.result import Status
from tests.overlap.slow import all_plans, brute_force, slow_makespan, slow_peak
from tests.overlap.strategies import problems


@settings(max_examples=200)
@given(problems(), st.integers(0, 10**6))
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


@settings(max_examples=150, deadline=None)
@given(problems(computations=2))
def test_exact_is_brute_force_and_nothing_is_below_the_bound(problem: Problem) -> None:
    best = brute_force(problem)
    result = solve(problem, method="exact")
    assert best is not None  # the graph's own order keeps to its limit
    assert result.objective_ns == best
    assert result.status is Status.OPTIMAL
    bound, cut = lower_bound_ns(problem, NEVER)
    assert not cut
    assert bound <= best
    for method in METHODS:
        other = solve(problem, method=method)
        assert other.objective_ns is not None
        assert bound <= best <= other.objective_ns
        assert other.plan is not None
        check(problem, other.plan)


@settings(max_examples=60, deadline=None)
@given(problems(computations=2, limited=False), st.integers(0, 12))
def test_exact_says_when_no_order_keeps_to_the_memory(problem: Problem, limit: int) -> None:
    tight = with_limit(problem, limit)
    best = brute_force(tight)
    outcome = solve_exact(tight, NEVER)
    if best is None:
        assert outcome.plan is None
        assert outcome.infeasibility is not None
        assert outcome.infeasibility.binding == ("memory_limit_bytes",)
    else:
        assert outcome.plan is not None
        assert check(tight, outcome.plan).makespan_ns == best


@settings(max_examples=60, deadline=None)
@given(problems(computations=3), st.integers(-1, 1))
def test_every_method_knows_the_least_memory(problem: Problem, more: int) -> None:
    """Rules may find no order where there is one, but make no other out of it."""
    least = min(slow_peak(problem, plan) for plan in all_plans(problem))
    tight = with_limit(problem, max(0, least + more))
    best = brute_force(tight)
    for method in METHODS:
        result = solve(tight, method=method)
        if result.plan is None:
            assert result.status is Status.INFEASIBLE
            assert result.infeasibility is not None
            assert result.infeasibility.binding == ("memory_limit_bytes",)
            assert best is None or method in ("greedy", "own_order")
        else:
            assert best is not None
            assert result.objective_ns is not None
            assert result.objective_ns >= best
            assert slow_peak(tight, result.plan) <= max(0, least + more)


@settings(max_examples=60, deadline=None)
@given(problems(computations=6, collectives=5))
def test_methods_keep_to_the_memory_and_to_the_bound(problem: Problem) -> None:
    own = solve(problem, method="own_order")
    for method in ("greedy", "search"):
        result = solve(problem, method=method)
        again = solve(problem, method=method)
        assert result.plan == again.plan
        assert result.objective_ns is not None
        assert own.objective_ns is not None
        assert result.objective_ns <= own.objective_ns
        assert result.lower_bound_ns is not None


@settings(max_examples=100)
@given(problems(collectives=4), st.data())
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


@settings(max_examples=30, deadline=None)
@given(problems(computations=5, collectives=4))
def test_search_goes_on_from_a_plan(problem: Problem) -> None:
    first = solve(problem, method="search")
    assert first.plan is not None
    assert first.objective_ns is not None
    told: list[Incumbent[Plan]] = []
    again = solve(problem, method="search", start=first.plan, on_progress=told.append)
    assert again.objective_ns is not None
    assert told[0].objective_ns <= first.objective_ns
    assert again.objective_ns == told[-1].objective_ns
    kept = solve(problem, method=REPLAN, start=first.plan)
    assert kept.plan == first.plan


def test_a_plan_of_another_graph_is_left_aside() -> None:
    problem = Problem(nodes=[Node("a"), Node("b", (0,), 5)])
    other = Plan((1, 0))
    assert solve(problem, method="search", start=other).plan == Plan((0, 1))
    result = solve(problem, method=REPLAN, start=other)
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("start_plan",)


@settings(max_examples=20)
@given(problems(computations=4, collectives=3))
def test_without_time_there_is_the_own_order(problem: Problem) -> None:
    for method in ("greedy", "search"):
        result = solve(problem, method=method, time_limit=1e-9)
        assert result.plan is not None
        assert result.objective_ns is not None
        assert result.objective_ns <= check(problem, own_order(problem)).makespan_ns


def test_a_search_does_not_use_up_the_time_on_a_small_graph() -> None:
    """Of two transfers there are few ways, however long it may search: this comes back at once."""
    nodes = [Node("prepare", (), 5), Node("a", (0,)), Node("wait a", (1,)), Node("b", (0,))]
    nodes += [Node("wait b", (3,)), Node("use", (2, 4), 7)]
    collectives = [Collective(1, 2, 0, 50, pack_ns=1), Collective(3, 4, 0, 50, pack_ns=1)]
    kind = Kind("all_gather", "0", ((0, 10), (100, 20)))
    problem = Problem(nodes=nodes, kinds=[kind], collectives=collectives)
    result = solve(problem, method="search", time_limit=10**6)
    assert result.status is Status.FEASIBLE


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
