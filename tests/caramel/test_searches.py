"""Searches for better transfers: never worse, as literal attempts find them, of bounded work."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner.families.caramel import (
    CARAMEL,
    METHODS,
    Group,
    Part,
    Plan,
    Problem,
    descent,
    evaluate,
    solve,
)
from planner.families.caramel.baselines import MAX_PARTITIONS
from planner.families.caramel.descent import less_sensitive
from planner.families.caramel.exact_whole import best_whole
from planner.families.caramel.one_machine import list_schedule
from planner.families.caramel.pricing import Load, LoadPricer, merged_loads
from planner.families.caramel.transfer_sizes import _Simulation, resize
from planner.families.caramel.windows import Windows
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.costs import AffineCost, DepthCost, TableCost, TransferCost
from planner.model.errors import NotApplicableError
from planner.model.graphs import Parameter
from planner.solving.deadline import NEVER, Deadline
from planner.solving.scenarios import Scenario, ScenarioSet
from planner.solving.tie_break import DELAYS
from planner.solving.what_if import robust_plan
from planner.testing import costs
from tests.caramel.exact_oracles import is_complete, price
from tests.caramel.making import solved
from tests.caramel.window_strategies import windows_strategy
from tests.formats.refused import refused
from tests.iteration.making import chain as layers
from tests.present import present

UNIT = AffineCost(1, Fraction(1))


def alone(known: Windows) -> list[Load]:
    """Return every parameter in a transfer of its own, as they are listed."""
    return [((j, size),) for j, size in enumerate(known.sizes)]


def by_readiness(known: Windows) -> list[Load]:
    return sorted(alone(known), key=lambda load: known.heads[load[0][0]])


# Neighbours that are sent together.


def literal(pricer: LoadPricer, loads: Sequence[Load], most_ns: int) -> list[Load]:
    """Return the same by trying each pair, from the first on."""
    made, place = list(loads), 0
    while place + 1 < len(made):
        together: dict[int, int] = {}
        for j, size in (*made[place], *made[place + 1]):
            together[j] = together.get(j, 0) + size
        tried = [*made[:place], tuple(together.items()), *made[place + 2 :]]
        if pricer.iteration_ns(tried) <= most_ns:
            made = tried
        else:
            place += 1
    return made


@st.composite
def transfers(draw: st.DrawFn, known: Windows) -> list[Load]:
    """Parameters, some in two pieces, in any order, some together."""
    pieces: list[tuple[int, int]] = []
    for j, size in enumerate(known.sizes):
        first = draw(st.integers(1, size))
        pieces += [(j, first)] if first == size else [(j, first), (j, size - first)]
    loads: list[Load] = []
    for j, size in draw(st.permutations(pieces)):
        if loads and all(j != other for other, _ in loads[-1]) and draw(st.booleans()):
            loads[-1] = (*loads[-1], (j, size))
        else:
            loads.append(((j, size),))
    return loads


@settings(max_examples=600)
@given(st.data(), windows_strategy(6), costs())
def test_neighbours_are_sent_together_as_by_trying(
    data: st.DataObject, known: Windows, cost: TransferCost
) -> None:
    pricer, loads = LoadPricer(known, cost), data.draw(transfers(known))
    most = pricer.iteration_ns(loads) + data.draw(st.sampled_from([0, 0, 1, 5, 40]))
    assert merged_loads(pricer, loads, most) == literal(pricer, loads, most)


def test_neighbours_are_not_sent_together_if_that_delays_later_transfers() -> None:
    """The second gradient waits for nobody; with the first it would end as the third is due."""
    known = Windows((1, 1, 1), (0, 5, 6), (0, 0, 50), 6, 50)
    pricer, loads = LoadPricer(known, AffineCost(0, Fraction(1))), alone(known)
    assert pricer.iteration_ns(loads) == 57
    assert merged_loads(pricer, loads, 57) == loads
    assert merged_loads(pricer, loads, 58) == [((0, 1), (1, 1)), ((2, 1),)]


# Sizes of transfers.


@settings(max_examples=60)
@given(windows_strategy(6), costs(), st.sampled_from([1, 1, 3, 4]))
def test_sizes_that_are_searched_are_never_worse_and_everything_is_sent(
    known: Windows, cost: TransferCost, element: int
) -> None:
    pricer, start = LoadPricer(known, cost), by_readiness(known)
    found = resize(pricer, start, 0, 300, element, NEVER)
    assert is_complete(known, found)
    assert price(known, cost, found) <= price(known, cost, start)
    for load in found:
        for j, size in load:
            assert size % element == 0 or (known.sizes[j] - size) % element == 0
    assert found == resize(pricer, start, 0, 300, element, NEVER)
    hurried = resize(pricer, start, 0, 300, element, Deadline(0))
    assert price(known, cost, hurried) <= price(known, cost, start)


@settings(max_examples=200)
@given(windows_strategy(6), costs(), st.data())
def test_the_simulation_is_the_price_of_the_most_urgent(
    known: Windows, cost: TransferCost, data: st.DataObject
) -> None:
    pricer = LoadPricer(known, cost)
    moments = st.sampled_from([0, *known.heads])
    sizes = data.draw(st.lists(st.tuples(st.integers(1, 40), moments), max_size=5))
    run = present(_Simulation(pricer).run(sizes))
    free, value = 0, known.compute_ns
    for load, (_, wait) in zip(list_schedule(pricer, run.sizes), run.sizes, strict=True):
        free = max(free, wait, *(known.heads[j] for j, _ in load))
        free += cost.cost_ns(sum(size for _, size in load))
        value = max(value, *(free + known.tails[j] for j, _ in load))
    assert run.value == value


def test_a_better_cut_is_found() -> None:
    """The second gradient is urgent: what is sent before it must end when it is ready."""
    known = Windows((100, 10, 50), (0, 40, 45), (0, 60, 20), 50, 60)
    start = by_readiness(known)
    found = resize(LoadPricer(known, UNIT), start, 0, 2000, 1, NEVER)
    assert price(known, UNIT, found) < price(known, UNIT, start)


# Of plans that last equally long, one that bears strains better.


@settings(max_examples=300)
@given(windows_strategy(6), costs())
@example(
    Windows((1, 1, 1, 1, 100, 1), (0, 0, 0, 1, 2, 1000), (0,) * 6, 1000, 0),
    AffineCost(1, Fraction(10)),
)
def test_what_is_steadied_is_never_worse_and_without_time_what_it_was(
    known: Windows, cost: TransferCost
) -> None:
    pricer, each = LoadPricer(known, cost), alone(known)
    best, _ = best_whole(known, cost, pricer.iteration_ns(each) + 1, known.compute_ns, NEVER)
    for start in (each, present(best)):
        better = less_sensitive(pricer, start, 200, NEVER)
        assert is_complete(known, better)
        nominal, *delayed = (
            [price(known, cost, loads, *delay) for loads in (better, start)]
            for delay in ((1, 1), *DELAYS)
        )
        assert nominal[0] <= nominal[1]
        if nominal[0] == nominal[1]:
            assert [one for one, _ in delayed] <= [other for _, other in delayed]
    assert less_sensitive(pricer, each, 200, Deadline(0)) == each


# Plans of very many transfers.


def chain(*sizes: int, **options: Any) -> Problem:
    """Return a problem of layers of these sizes, whose op order is given: nobody draws one."""
    graph = layers(*((10**6, 10**6, size) for size in sizes))
    order = [op.name for op in graph.ops]
    return Problem(graph, AffineCost(1000, Fraction(1, 10)), op_order=order, **options)


@pytest.mark.parametrize(
    "interference", [NO_CONTENTION, Interference(300, slowdown=Fraction(3, 2))]
)
def test_what_there_is_no_time_for_is_refused(interference: Interference) -> None:
    for method, sizes, path in (
        ("bytescheduler", [4 * 10**9] * 5, "time_limit_s"),  # 5000 partitions
        ("exact", [2**20] * 300, "method"),
    ):
        with refused(path, "", NotApplicableError):
            solve(chain(*sizes, interference=interference), method=method, time_limit=1e-9)


def partitions(count: int) -> tuple[LoadPricer, list[Load]]:
    """Return a plan that sends two parameters in `count` transfers, in a poor order."""
    half = count // 2
    known = Windows((half, half), (0, 5), (5, 0), 10, 10)
    return LoadPricer(known, UNIT), [((place % 2, 1),) for place in range(count)]


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of transfers of all plans that the local search prices."""
    counts, value = [], descent._value

    def counted(pricer: LoadPricer, transfers: list[Any], *rest: Any) -> tuple[int, int]:
        counts.append(len(transfers))
        assert sum(counts) <= 10**6
        return value(pricer, transfers, *rest)

    monkeypatch.setattr(descent, "_value", counted)
    return counts


def test_local_search_prices_no_more_however_many_transfers_there_are(looked: list[int]) -> None:
    for count in (1000, 4000, 40_000):
        pricer, loads = partitions(count)
        looked.clear()
        better = descent.descend(pricer, loads, 0, 200, NEVER)
        assert sum(looked) <= 200 * 10**3 + count  # and the start itself
        assert pricer.iteration_ns(better) <= pricer.iteration_ns(loads)
        assert pricer.looks(200, loads) * count <= 200 * pricer.many
    pricer, loads = partitions(3000)  # where the budget is below one plan
    found = resize(pricer, loads, 0, 1000, 1, NEVER)
    assert sum(size for load in found for _, size in load) == 3000
    assert pricer.iteration_ns(found) <= pricer.iteration_ns(loads)


def test_transfers_of_one_size_cost_what_their_depths_do() -> None:
    cost = DepthCost(((1, AffineCost(0, Fraction(1))), (2, AffineCost(0, Fraction(3)))))
    problem = replace(chain(7, 7), cost=cost)
    groups = tuple(Group((Part(j, 0, 7),), depth) for j, depth in ((1, 1), (0, 2)))
    plan = Plan(groups, (problem.order.backward,), problem.order.forward)
    assert [time.end_ns - time.start_ns for time in evaluate(problem, plan).times] == [7, 21]


@pytest.mark.slow
def test_very_many_partitions_are_not_improved_for_long() -> None:
    """The cost's margin jumps at 94 kB: partitions of 4 MB are better than what searches try."""
    table = ((0, 54211), (1, 59733), (58921, 60037), (93947, 70500), (93975, 74076))
    problem = replace(chain(5 * 10**9, 20 * 10**6), cost=TableCost(table))
    assert solved(problem).iteration_ns <= solved(problem, "bytescheduler").iteration_ns


def test_a_huge_parameter_in_equal_pieces_is_not_searched_as_many_parameters_are(
    looked: list[int],
) -> None:
    """A table that falls makes pieces of one size the best: 537 of 2^31 - 1 bytes here."""
    rows = ((0, 25165), (92, 35046), (6212, 58271), (40205, 1844), (46934, 28972))
    parameter = Parameter("w", 2**31 - 1, ("2/backward",), ("2/forward",))
    graph = replace(chain(1, 1, 1, 1).graph, parameters=(parameter,))
    assert len(solved(Problem(graph, TableCost(rows))).plan.groups) > 500
    assert sum(looked) < 10**6  # 7 million before there was a limit
    few, many = (
        LoadPricer(Windows((1,) * count, (0,) * count, (0,) * count, 1, 1), UNIT)
        for count in (1, 38)
    )
    assert few.looks(4000, [((0, 1),)] * 300) < 100
    assert many.looks(4000, [((0, 1),)] * 300) == 4000


def test_a_plan_of_very_many_transfers_is_priced_in_full_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Searches that compare plans need nothing of them but what the iteration lasts."""
    priced = []

    def counted(problem: Problem, plan: Plan) -> Any:
        priced.append(len(plan.groups))
        return evaluate(problem, plan)

    for name in ("evaluation", "family"):
        module = sys.modules[f"planner.families.caramel.{name}"]
        monkeypatch.setattr(module, "evaluate", counted, raising=False)
    falling = TableCost(((0, 10**6), (4 * 10**6, 10**5), (8 * 10**6, 10**8)))
    assert len(solved(replace(chain(4 * 10**9), cost=falling)).plan.groups) == 1000
    assert priced == [1000]


def test_scenarios_change_little_in_very_many_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    module = sys.modules["planner.families.caramel.family"]
    before = module.neighbours

    def counted(*args: Any) -> Iterator[Any]:
        for changed in before(*args):
            looked.append(len(changed))
            yield changed

    monkeypatch.setattr(module, "neighbours", counted)
    rows = ((0, 1000), (100, 5000), (10**5, 90_000), (10**6, 500_000), (10**7, 8 * 10**6))
    free, late = Scenario(startup=Fraction(0)), Scenario(late=Fraction(2))
    outlook = ScenarioSet(((free, Fraction(1)), (late, Fraction(1))))
    problem = replace(chain(4 * 10**9), cost=TableCost(rows))
    result, _ = robust_plan(CARAMEL, problem, outlook, NEVER)
    assert len(present(result.plan).groups) == 1000
    assert len(looked) < 10


def test_there_are_partitions_nobody_would_wait_for() -> None:
    """And the clock decides nothing."""
    assert len(solved(chain(4 * 10**9), "bytescheduler", time_limit=1e-9).plan.groups) == 1000
    size = 4 * 10**6
    plan = present(METHODS["bytescheduler"](chain(MAX_PARTITIONS * size), NEVER).plan)
    assert len(plan.groups) == 10_000
    with refused("parameters", "expected at most 10000 partitions", NotApplicableError):
        solve(chain((MAX_PARTITIONS + 1) * size), method="bytescheduler")
