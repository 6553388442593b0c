"""Plans that hold if times differ: what is chosen, and what is kept to."""

from dataclasses import replace
from fractions import Fraction

import overlap_scenarios as simulator
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.overlap import OVERLAP, Collective, Kind, Node, Plan, Problem, check, solve
from planner.families.overlap.robust import SCENARIOS, USUAL, perturbed
from planner.jsonio.service import solve_or_raise
from planner.model.errors import InvalidInputError
from planner.solving.deadline import NEVER
from planner.solving.methods import Outcome
from planner.solving.scenarios import Scenario
from planner.solving.what_if import robust_plan
from planner.testing import problems
from tests.overlap.test_problem import request
from tests.present import present

KIND = Kind("gather", "0", ((0, 1000),), mergeable=False)
NODES = [Node("first", (), 1000), Node("start"), Node("wait", (1,)), Node("use", (2,), 10)]
TIGHT = Problem(
    nodes=[*NODES, Node("second", (), 1000)],
    kinds=[KIND],
    collectives=[Collective(1, 2, 0, 4)],
)
"""A transfer of 1000 ns is hidden by either computation of 1000 ns."""


def test_of_plans_that_cost_the_same_the_one_with_room_is_chosen() -> None:
    """Waited for behind both computations, the transfer may take twice as long."""
    tight = OVERLAP.verify(TIGHT, Outcome(Plan((1, 0, 2, 3, 4)), method="search"), 0.0)
    result, found = robust_plan(OVERLAP, TIGHT, USUAL, NEVER, tight)
    plan, prospect = present(result.plan), present(found)
    assert result.objective_ns == prospect.usual_ns == tight.objective_ns == 2010
    assert prospect.value < prospect.usual_value
    for scenario in SCENARIOS:
        variant = perturbed(TIGHT, scenario)
        assert OVERLAP.price(variant, plan) == variant.computation_ns


def test_what_costs_a_twentieth_more_is_not_chosen_however_much_room_it_has() -> None:
    """Merged, both transfers need one start-up, and packing makes the graph 5 % longer."""
    nodes = [Node("a"), Node("b"), Node("other", (), 200), Node("wait a", (0,))]
    problem = Problem(
        nodes=[*nodes, Node("wait b", (1,))],
        kinds=[Kind("gather", "0", ((0, 100),))],
        collectives=[Collective(0, 3, 0, 4, pack_ns=5), Collective(1, 4, 0, 4, pack_ns=5)],
    )
    merged = Plan((0, 1, 2, 3, 4), ((0, 1),))
    assert check(problem, merged).makespan_ns == 210
    result, prospect = robust_plan(OVERLAP, problem, USUAL, NEVER, others=[merged])
    assert result.objective_ns == 200
    variants = [perturbed(problem, scenario) for scenario, _ in USUAL.scenarios]
    prices = [OVERLAP.price(variant, merged) for variant in variants]
    assert present(prospect).value > USUAL.of(prices)


def test_the_kind_that_pays_most_for_start_ups_is_merged_alone() -> None:
    """Six gathers of 100 ns are hidden one by one; twice as long, only larger ones are.

    Merging the two sums, which take 50 ns of packing, would cost more than a hundredth.
    """
    nodes = [Node(f"gather {number}") for number in range(6)]
    nodes += [Node("sum a"), Node("sum b"), Node("compute", (), 700)]
    nodes += [Node(f"wait {number}", (number,)) for number in range(8)]
    problem = Problem(
        nodes=nodes,
        kinds=[Kind("gather", "0", ((0, 100),)), Kind("sum", "1", ((0, 10),))],
        collectives=[
            *(Collective(number, 9 + number, 0, 4, pack_ns=1) for number in range(6)),
            *(Collective(number, 9 + number, 1, 4, pack_ns=25) for number in (6, 7)),
        ],
    )
    apart = OVERLAP.verify(problem, Outcome(Plan(tuple(range(17))), method="search"), 0.0)
    for sums in ((), ((6, 7),)):
        first = next(OVERLAP.neighbours(problem, [problem], Plan(tuple(range(17)), sums)))
        assert first.merged == (*sums, tuple(range(6)))
    result, _ = robust_plan(OVERLAP, problem, USUAL, NEVER, apart)
    plan = present(result.plan)
    assert {problem.collectives[members[0]].kind for members in plan.merged} == {0}
    twice = perturbed(problem, SCENARIOS[2])
    assert OVERLAP.price(twice, plan) < OVERLAP.price(twice, present(apart.plan))


@given(problems("overlap"), st.sampled_from(SCENARIOS))
def test_other_times_are_checked_as_those_of_a_new_problem(
    problem: Problem, scenario: Scenario
) -> None:
    found = perturbed(problem, scenario)
    rows = {name: getattr(found, name) for name in ("nodes", "kinds", "collectives")}
    assert found == replace(problem, **rows)
    assert sum(node.duration_ns for node in found.nodes) == pytest.approx(
        float(problem.computation_ns * scenario.computation), abs=len(problem.nodes)
    )
    if problem.computation_ns > 1:
        with pytest.raises(InvalidInputError, match="the sum of all times"):
            perturbed(problem, replace(scenario, computation=Fraction(2**62)))


def test_channels_that_share_carry_one_transfer_at_a_time() -> None:
    kinds = [replace(KIND, channel=channel) for channel in "ab"]
    nodes = [Node("start a"), Node("start b"), Node("wait a", (0,)), Node("wait b", (1,))]
    collectives = [Collective(0, 2, 0, 4), Collective(1, 3, 1, 4)]
    apart = Problem(nodes=nodes, kinds=kinds, collectives=collectives)
    plan = present(solve(apart).plan)
    assert check(apart, plan).makespan_ns == 1000
    assert check(perturbed(apart, Scenario(shared=True)), plan).makespan_ns == 2000


def test_requests_have_robust_plans_unless_they_ask_for_nominal_times_or_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    robust = solve_or_raise(request(TIGHT, regret=True))
    nominal = solve_or_raise(request(TIGHT, outlook="nominal", with_plan=True))
    again = solve_or_raise(request(TIGHT, start_plan=nominal["plan"]))
    assert robust["order"].index(1) == 0
    assert robust["prospect"]["loss"] == 1
    assert "prospect" not in nominal
    assert "prospect" not in again
    # A large graph is planned for scenarios with a time limit only.
    monkeypatch.setattr("planner.families.overlap.search.LARGE", 4)
    assert "prospect" not in solve_or_raise(request(TIGHT))
    assert "prospect" in solve_or_raise(request(TIGHT, time_limit_s=10))
    rows = robust["regret"]  # of the scenarios of the family
    assert [row.get("shared", False) for row in rows] == [*[False] * 5, True]
    assert rows[1]["bandwidth"] == float(Fraction(2, 3))


@settings(max_examples=60)
@given(problems("overlap", 4), st.sampled_from(sorted(simulator.SCENARIOS)))
def test_the_simulator_of_the_benchmark_agrees(problem: Problem, name: str) -> None:
    """Its times are not rounded: a transfer, a node, packing differ by less than 1 ns each."""
    plan, times = solve(replace(problem, memory_limit_bytes=None)).plan, simulator.SCENARIOS[name]
    assert plan is not None
    scenario = Scenario(
        computation=Fraction(times.computation),
        startup=Fraction(times.transfers),
        bandwidth=1 / Fraction(times.transfers),
        shared=times.shared,
    )
    there = simulator.exposed_ns(request(problem), plan.order, plan.merged, times)
    here = check(perturbed(replace(problem, memory_limit_bytes=None), scenario), plan).exposed_ns
    assert there == pytest.approx(here, abs=2 * len(problem.nodes))
    if name in ("as planned", "one channel"):
        assert there <= here  # times between measured points are rounded up
