"""Every method and the bound against the definition, all plans of small graphs, and by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.overlap import (
    METHODS,
    Builder,
    Collective,
    Kind,
    Node,
    Plan,
    Problem,
    Tensor,
    check,
    evaluate,
    lower_bound_ns,
    own_order,
    solve,
    with_limit,
)
from planner.families.overlap.list_schedule import Rules
from planner.families.overlap.merging import groups_up_to, merge_order, unmerged
from planner.families.overlap.search import listed
from planner.solving.deadline import NEVER
from planner.solving.result import Status
from planner.testing import problems
from tests.overlap.slow import all_plans, brute_force, slow_makespan, slow_peak
from tests.patience import Patience
from tests.present import present


@settings(max_examples=200)
@given(problems("overlap", 2), st.integers(0, 10**6))
def test_simulator_is_the_definition(problem: Problem, pick: int) -> None:
    plans = [own_order(problem), *islice(all_plans(problem), 400)]
    plan = plans[pick % len(plans)]
    evaluation = evaluate(problem, plan)
    assert evaluation.makespan_ns == slow_makespan(problem, plan)
    assert evaluation.peak_bytes == slow_peak(problem, plan)
    assert evaluation.exposed_ns == evaluation.makespan_ns - problem.computation_ns


def test_what_a_transfer_reads_is_held_until_its_wait_unless_it_was_packed() -> None:
    """Each reads 10 bytes and makes 8; a merged one packs a byte, and its input is free."""
    nodes = [Node("make a"), Node("make b"), Node("a", (0,)), Node("b", (1,))]
    nodes += [Node("wait a", (2,)), Node("wait b", (3,))]
    problem = Problem(
        nodes=nodes,
        kinds=[Kind("k", "0", ((0, 1),))],
        collectives=[
            Collective(2, 4, 0, 1, pack_bytes=1, input_tensor=0),
            Collective(3, 5, 0, 1, pack_bytes=1, input_tensor=1),
        ],
        tensors=[Tensor(10, 0, (2,)), Tensor(10, 1, (3,)), Tensor(8, 2, (4,)), Tensor(8, 3, (5,))],
    )
    order = tuple(range(6))
    for merged, peak in (((), 10 + 10 + 8 + 8), (((0, 1),), 10 + 10 + 8 + 1 + 1)):
        plan = Plan(order, merged)
        assert evaluate(problem, plan).peak_bytes == slow_peak(problem, plan) == peak


@settings(max_examples=200)
@given(problems("overlap", 2))
def test_no_plan_is_below_a_bound_or_above_the_optimum(problem: Problem) -> None:
    """With limits of memory near the least; rules may find no order where there is one."""
    least = brute_force(problem)
    for method in METHODS:
        result = solve(problem, method=method)
        found, bound = result.objective_ns, result.lower_bound_ns
        assert bound is None or least is None or bound <= least
        if method in ("auto", "exact"):
            assert found == least
            assert result.status is (Status.INFEASIBLE if least is None else Status.OPTIMAL)
        else:
            assert found is None or (least is not None and least <= found)


@settings(max_examples=100)
@given(problems("overlap", 6))
def test_of_larger_graphs_none_is_slower_than_its_own_order(problem: Problem) -> None:
    own = solve(problem, method="own_order").objective_ns
    for method in ("greedy", "search"):
        result = solve(problem, method=method).objective_ns
        assert own is None or (result is not None and result <= own)


Nodes = Iterable[tuple[Sequence[int], int]]


def graph(nodes: Nodes, sent: Iterable[tuple[int, ...]], *times: tuple[int, int]) -> Problem:
    """Return a problem of nodes (what they need, duration) and collectives (start, wait, size)."""
    return Problem(
        nodes=[Node(str(place), tuple(after), lasts) for place, (after, lasts) in enumerate(nodes)],
        kinds=[Kind("k", "0", times)],
        collectives=[Collective(start, wait, 0, *more) for start, wait, *more in sent],
    )


NEEDED = [((0,), 0), ((1,), 0), ((0,), 0), ((3,), 0), ((0,), 0), ((5,), 0)]
THREE = graph([((), 7), *NEEDED, ((2, 4, 6), 9)], [(1, 2, 1), (3, 4, 1), (5, 6, 1)], (0, 5))
KNOWN = {
    "two computations, one after the other, and then what they send": (
        graph([((), 10), ((), 20), ((0, 1), 0), ((2,), 0)], [(2, 3, 1)], (0, 5)),
        10 + 20 + 5,
        "greedy",
    ),
    "all ancestors come before a transfer and all descendants after": (
        graph(
            [((), 10), ((), 10), ((0, 1), 0), ((2,), 0), ((3,), 10), ((3,), 10)],
            [(2, 3, 1)],
            (0, 5),
        ),
        10 + 10 + 5 + 10 + 10,
        "exact",
    ),
    "a channel waits for the first and is followed by the last": (
        replace(THREE, kinds=[Kind("k", "0", ((0, 5),), mergeable=False)]),
        7 + 15 + 9,
        "exact",
    ),
    "merged, one start-up is enough: only the chain is left": (THREE, 7 + 5 + 9, "exact"),
    # Each of two transfers stands between computations; merged, both wait for the second half.
    "what cannot be merged in time saves nothing": (
        graph(
            [((), 100), ((0,), 0), ((1,), 0), ((2,), 100), ((3,), 0), ((4,), 0), ((5,), 100)],
            [(1, 2, 1), (4, 5, 1)],
            (0, 50),
            (100, 51),
        ),
        402,
        "own_order",
    ),
    # The first two in 20, as soon as may be, and the third, which has to be computed first, in 19.
    # All three in 21 would have to wait for it, and leave two computations of 14 and 4.
    "what some can be merged with is looked at again": (
        graph(
            [
                *[((), 0), ((0,), 0), ((1,), 4), ((), 0), ((3,), 0), ((4,), 14)],
                *[((), 17), ((6,), 0), ((7,), 0)],
            ],
            [(0, 1, 1), (3, 4, 1), (7, 8, 1)],
            (1, 19),
            (3, 21),
        ),
        39,
        "exact",
    ),
    "a collective of no bytes takes its start-up": (
        graph([((), 0), ((0,), 0)], [(0, 1, 0)], (0, 100)),
        100,
        "exact",
    ),
    "collectives of no bytes travel as one": (
        graph([((), 0), ((0,), 0), ((), 0), ((2,), 0)], [(0, 1, 0), (2, 3, 0)], (0, 100)),
        100,
        "exact",
    ),
}


@pytest.mark.parametrize(("problem", "least", "method"), KNOWN.values(), ids=KNOWN)
def test_bounds_are_met_where_the_shortest_step_is_known(
    problem: Problem, least: int, method: str
) -> None:
    assert lower_bound_ns(problem, NEVER) == (least, False)
    assert solve(problem, method=method).objective_ns == least


@given(problems("overlap", 2), st.integers(0, 4))
def test_a_bound_that_is_cut_short_is_at_most_the_whole_one(problem: Problem, looks: int) -> None:
    whole, _ = lower_bound_ns(problem, NEVER)
    least, cut_short = lower_bound_ns(problem, Patience(looks))
    assert least <= whole
    assert cut_short or least == whole


def sharded(layers: int) -> Problem:
    """Gather, compute, scatter layer by layer, on a channel that is as busy as the rank."""
    nodes: list[Node] = []
    collectives: list[Collective] = []
    tensors: list[Tensor] = []
    for layer in range(layers):
        at = len(nodes)
        before = (at - 3,) if layer else ()
        nodes += [Node("gather"), Node("wait", (at,)), Node("use", (at + 1, *before), 20)]
        nodes += [Node("scatter", (at + 2,)), Node("done", (at + 3,))]
        collectives.append(Collective(at, at + 1, 0, 1))
        collectives.append(Collective(at + 3, at + 4, 1, 1, input_tensor=2 * layer + 1))
        tensors += [Tensor(10, at, (at + 2,)), Tensor(10, at + 2, (at + 3,))]
    kinds = [Kind("gather", "0", ((0, 10),)), Kind("scatter", "0", ((0, 10),))]
    return Problem(nodes=nodes, kinds=kinds, collectives=collectives, tensors=tensors)


def test_what_is_gathered_early_does_not_take_the_memory_that_others_need() -> None:
    """All starts are due from the beginning; memory for two more tensors than in the own order."""
    problem = sharded(12)
    own = evaluate(problem, own_order(problem))
    limited = with_limit(problem, own.peak_bytes + 20)
    early, late = (
        present(listed(limited, (), Rules(reserve=0.2, lead=0.0, ahead=ahead), NEVER))
        for ahead in (inf, 0.1)
    )
    assert check(limited, early).makespan_ns > 1.5 * check(limited, late).makespan_ns
    found = solve(limited, method="search")
    assert found.objective_ns == lower_bound_ns(limited, NEVER)[0] == 12 * 20 + 10 + 10


@pytest.mark.parametrize(("small", "merged"), [(0, ((0, 1, 2),)), (4, ((0, 2),))])
def test_small_collectives_are_merged_across_a_large_one(
    small: int, merged: tuple[tuple[int, ...], ...]
) -> None:
    graph = Builder()
    graph.add_kind("all_gather", channel="0", times=[(0, 20)])
    for name, size in (("bias", 1), ("weight", 100), ("scale", 1)):
        graph.add_collective(name, "all_gather", size)
    for name in ("bias", "weight", "scale"):
        graph.add_op(f"use {name}", 10, after=[name])
    problem = graph.problem()
    order = merge_order(problem, unmerged(problem))
    assert groups_up_to(problem, *order, {0: (0, small)}) == merged


@pytest.mark.parametrize(("behind", "makespan_ns"), [(0.0, 170), (1.0, 150)])
def test_what_is_not_urgent_fills_waits_though_it_lasts_longer(
    behind: float, makespan_ns: int
) -> None:
    """A transfer of 20 ns, and a computation of 30 that the graph has in front of it."""
    graph = Builder()
    graph.add_kind("all_to_all", channel="0", times=[(0, 20)])
    graph.add_op("other", 30)
    graph.add_op("first", 10)
    graph.add_collective("exchange", "all_to_all", 1, after=["first"])
    graph.add_op("use", 10, after=["exchange"])
    graph.add_op("rest", 100, after=["use"])
    problem = graph.problem()
    plan = present(listed(problem, (), Rules(reserve=0.0, lead=0.0, behind=behind), NEVER))
    assert evaluate(problem, plan).makespan_ns == makespan_ns


@pytest.mark.parametrize("spare", [0, 1000, None])
def test_transfers_are_waited_for_where_memory_is_short_and_not_before(spare: int | None) -> None:
    """Nothing reads what is scattered; without a limit the own order's memory counts as one."""
    problem = sharded(6)
    own = evaluate(problem, own_order(problem))
    limited = problem if spare is None else with_limit(problem, own.peak_bytes + spare)
    plan = present(listed(limited, (), Rules(), NEVER))
    check(limited, plan)
    place = {node: at for at, node in enumerate(plan.order)}
    waits, uses = (
        [place[at] for at, node in enumerate(problem.nodes) if node.name == name]
        for name in ("done", "use")
    )
    assert (min(waits) > max(uses)) == (spare == 1000)


def test_a_search_merges_nothing_that_waits_for_itself() -> None:
    """The third starts when the first has been waited for: together both would wait for ever.

    Of few transfers there are few ways, however long it may search: this comes back at once.
    """
    needed = ((), (0,), (0, 1), (2,), (1, 3), (3, 4))
    ends = [(0, 2, 0), (1, 4, 1), (3, 5, 1)]
    problem = graph([(after, 0) for after in needed], ends, (0, 0), (4, 1))
    result = solve(problem, method="search", time_limit=10**6)
    assert result.objective_ns == 2 == brute_force(problem)
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
    plan = present(solve(problem, method="search").plan)
    check(problem, plan)
    assert {gathers[group[0]].kind for group in plan.merged} <= {0}
