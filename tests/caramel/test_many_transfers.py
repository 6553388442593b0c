"""Plans of very many transfers: bounded work, and no answer without a plan."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import planner
from planner import AffineCost
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
from planner.families.caramel.pricing import Load, LoadPricer
from planner.families.caramel.transfer_sizes import resize
from planner.families.caramel.windows import Windows
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.costs import DepthCost, TableCost
from planner.model.errors import NotApplicableError
from planner.model.graphs import Parameter
from planner.solving.deadline import NEVER
from planner.solving.scenarios import Scenario, ScenarioSet
from planner.solving.what_if import robust_plan
from tests.caramel.test_baselines import chain as layers

BESIDE = Interference(300, Fraction(1, 100), Fraction(3, 2), 50)


def chain(*sizes: int, **options: Any) -> Problem:
    """Return a problem of layers of these sizes, whose op order is given: nobody draws one."""
    graph = layers(*((10**6, 10**6, size) for size in sizes))
    order = [op.name for op in graph.ops]
    return Problem(graph, AffineCost(1000, Fraction(1, 10)), op_order=order, **options)


@pytest.mark.parametrize("interference", [NO_CONTENTION, BESIDE])
@pytest.mark.parametrize("method", METHODS)
def test_without_time_there_is_a_plan_or_the_limit_is_named(
    method: str, interference: Interference
) -> None:
    for sizes in ((4 * 10**9,) * 5, (2**20,) * 300):  # 5000 partitions, many parameters
        problem = chain(*sizes, interference=interference)
        refused = {("bytescheduler", 5): "time_limit_s", ("exact", 300): "method"}
        if (method, len(sizes)) not in refused:
            assert solve(problem, method=method, time_limit=1e-9).plan is not None
            continue
        with pytest.raises(NotApplicableError) as error:
            solve(problem, method=method, time_limit=1e-9)
        assert error.value.path == refused[method, len(sizes)]


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("auto", {}),
        ("auto", {"regret": True}),
        ("auto", {"scenarios": [{"bandwidth": 0.5}]}),
        ("bytescheduler", {}),
        ("bytescheduler", {"regret": True}),
    ],
)
def test_an_answer_without_time_is_no_fault(method: str, more: Mapping[str, Any]) -> None:
    ops = [{"name": "f", "ns": 9, "pass": "forward"}, {"name": "b", "ns": 9, "pass": "backward"}]
    request = {
        "problem": "caramel",
        "ops": [ops[0], {**ops[1], "after": ["f"]}],
        "parameters": [{"name": "w", "bytes": 4 * 10**10, "updated_by": "b", "read_by": "f"}],
        "network": {"startup_ns": 9, "ns_per_byte": 1},
        "op_order": ["f", "b"],
        "method": method,
        "time_limit_s": 1e-9,
        **more,
    }
    answer = planner.solve(request)
    if method == "auto":
        assert answer["status"] in ("optimal", "time_limit")
    else:
        assert answer["error"]["path"] == "time_limit_s"


def test_bytescheduler_plans_few_partitions_whatever_the_clock_says() -> None:
    result = solve(chain(4 * 10**9), method="bytescheduler", time_limit=1e-9)
    assert result.plan is not None
    assert len(result.plan.groups) == 1000


def partitions(count: int) -> tuple[LoadPricer, list[Load]]:
    """Return two parameters in so many transfers, in an order that could be better."""
    half = count // 2
    known = Windows((half, half), (0, 5), (5, 0), 10, 10)
    loads: list[Load] = [((place % 2, 1),) for place in range(count)]
    return LoadPricer(known, AffineCost(1, Fraction(1))), loads


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


def test_sizes_are_not_searched_where_the_budget_is_below_one_plan() -> None:
    pricer, loads = partitions(3000)
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
    result = solve(problem)
    assert result.plan is not None
    assert result.objective_ns is not None
    rule = solve(problem, method="bytescheduler")
    assert rule.plan is not None
    assert result.objective_ns <= evaluate(problem, rule.plan).iteration_ns


def test_a_huge_parameter_in_equal_pieces_is_not_searched_as_many_parameters_are(
    looked: list[int],
) -> None:
    """A table that falls makes pieces of one size the best: 537 of 2^31 - 1 bytes here."""
    rows = ((0, 25165), (92, 35046), (6212, 58271), (40205, 1844), (46934, 28972))
    graph = replace(
        chain(1, 1, 1, 1).graph, parameters=(Parameter("w", 2**31 - 1, ("b2",), ("f2",)),)
    )
    result = solve(Problem(graph, TableCost(rows)))
    assert result.plan is not None
    assert len(result.plan.groups) > 500
    assert sum(looked) < 10**6  # 7 million before there was a limit
    pieces: list[Load] = [((0, 1),)] * 300
    few, many = (
        LoadPricer(
            Windows((1,) * count, (0,) * count, (0,) * count, 1, 1), AffineCost(1, Fraction(1))
        )
        for count in (1, 38)
    )
    assert few.looks(4000, pieces) < 100
    assert many.looks(4000, pieces) == 4000


FALLING = TableCost(((0, 10**6), (4 * 10**6, 10**5), (8 * 10**6, 10**8)))
"""Costs that are least for transfers of so many bytes, in as many as there have to be."""


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
    problem = replace(chain(4 * 10**9), cost=FALLING)
    result = solve(problem)
    assert result.plan is not None
    assert len(result.plan.groups) == 1000
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
    assert result.plan is not None
    assert len(result.plan.groups) == 1000
    assert len(looked) < 10


def test_there_are_partitions_nobody_would_wait_for() -> None:
    size = 4 * 10**6
    plan = METHODS["bytescheduler"](chain(MAX_PARTITIONS * size), NEVER).plan
    assert plan is not None
    assert len(plan.groups) == 10_000
    with pytest.raises(NotApplicableError, match="expected at most 10000 partitions") as error:
        solve(chain((MAX_PARTITIONS + 1) * size), method="bytescheduler")
    assert error.value.path == "parameters"
