"""Regret, and plans for several scenarios, in every family that can be perturbed."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families import ibatch, iteration, overlap, yan
from planner.model.clusters import Cluster, Nic
from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.model.topologies import Switch
from planner.solving.deadline import NEVER, Deadline
from planner.solving.family import Family
from planner.solving.scenarios import MOST, SCENARIOS, Outlook, Scenario
from planner.solving.what_if import regrets, robust_plan
from planner.testing import problems as drawn_problems
from tests.fsdp.making import every_plan
from tests.fsdp.making import problems as fsdp_problems
from tests.overlap.slow import all_plans
from tests.perturbed import (
    CASES,
    Case,
    drawn_families,
    every_family,
    outlooks,
    robust_families,
)
from tests.strategies import problems as ibatch_problems

SLOWER = Outlook(
    (
        (Scenario(), Fraction(2)),
        (Scenario(computation=Fraction(3, 2)), Fraction(1)),
        (Scenario(bandwidth=Fraction(1, 4)), Fraction(1)),
        (Scenario(startup=Fraction(4)), Fraction(1)),
    )
)


@every_family
@settings(max_examples=20)
@given(data=st.data())
def test_ones_change_nothing_and_numbers_without_meaning_are_refused(
    name: str, data: st.DataObject
) -> None:
    case = CASES[name]
    problem = case.example if case.drawn.is_empty else data.draw(case.drawn)
    assert case.family.perturb(problem, Scenario()) == problem
    others: dict[str, Any] = {"bandwidth": Fraction(2), "late": 1, "spread": 1, "part": "first"}
    for field in case.refused:
        with pytest.raises(NotApplicableError) as refused:
            case.family.perturb(problem, Scenario(**{field: others[field]}))
        assert refused.value.path == field
    for field in {"late", "part"} - set(case.refused):
        case.family.perturb(problem, Scenario(**{field: others[field]}))


@drawn_families
@settings(max_examples=20)
@given(data=st.data(), outlook=outlooks)
def test_a_robust_plan_is_a_plan_near_the_usual_one(
    name: str, data: st.DataObject, outlook: Outlook
) -> None:
    check_robust(CASES[name].family, data.draw(CASES[name].drawn), outlook)


@robust_families
def test_a_robust_plan_by_hand(name: str) -> None:
    family, problem = CASES[name].family, CASES[name].example
    for percentile in (None, Fraction(90), Fraction(60)):
        outlook = replace(SLOWER, percentile=percentile)
        check_robust(family, problem, outlook)
        if name in ("caramel", "iteration"):  # whose bounds are those of an op order
            continue
        variants = [family.perturb(problem, scenario) for scenario, _ in outlook.scenarios]
        bounds = [family.solve(variant).lower_bound_ns or 0 for variant in variants]
        _, prospect = robust_plan(family, problem, outlook, NEVER)
        assert prospect is not None
        assert prospect.bound == min(outlook.of(bounds), prospect.value)


def check_robust(family: Family[Any, Any, Any], problem: Any, outlook: Outlook) -> None:
    result, prospect = robust_plan(family, problem, outlook, NEVER)
    if result.plan is None:
        assert prospect is None
        return
    assert prospect is not None
    assert prospect.bound <= prospect.value <= prospect.usual_value
    assert family.price(problem, result.plan) == result.objective_ns
    assert prospect.usual_ns == family.solve(problem).objective_ns
    assert result.objective_ns is not None
    assert prospect.usual_ns <= result.objective_ns <= MOST * prospect.usual_ns
    fixed = family.fix_order(problem, result.plan)
    times = []
    for scenario, _ in outlook.scenarios:
        variant = family.perturb(fixed, scenario)
        times.append(family.price(variant, family.repriced(variant, result.plan)))
    assert outlook.of(times) == prospect.value


@pytest.mark.parametrize("name", [name for name in CASES if name != "iteration"])
@settings(max_examples=20)
@given(data=st.data())
def test_regret_lies_between_the_best_plan_found_and_the_bound(
    name: str, data: st.DataObject
) -> None:
    check_regret(CASES[name], data.draw(CASES[name].drawn))


@every_family
def test_the_regret_of_a_plan_by_hand(name: str) -> None:
    check_regret(CASES[name], CASES[name].example)


def check_regret(case: Case, problem: Any) -> None:
    family = case.family
    plan = family.solve(problem).plan
    if plan is None:
        return
    rows = regrets(family, problem, plan, NEVER)
    meant = [
        scenario
        for scenario in SCENARIOS
        if all(getattr(scenario, field) == getattr(Scenario(), field) for field in case.refused)
    ]
    if family.name not in ("iteration", "drizzle"):  # there a plan may break a limit
        assert [row.scenario for row in rows] == meant
    for row in rows:
        other = family.perturb(problem, row.scenario)
        assert row.plan_ns == family.price(other, family.repriced(other, plan))
        solved = family.solve(other)
        assert solved.objective_ns is not None
        assert row.best_ns <= min(row.plan_ns, solved.objective_ns)
        assert row.bound_ns is not None
        assert row.bound_ns <= row.best_ns
        assert row.at_least >= 1
        assert row.at_most is None or row.at_most >= row.at_least


def all_batches(problem: ibatch.Problem) -> Iterator[ibatch.Plan]:
    for count in range(problem.layers):
        for inner in combinations(range(1, problem.layers), count):
            yield problem.plan((0, *inner, problem.layers))


EVERY: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Iterator[Any]], bool]] = {
    "ibatch": (ibatch_problems(max_layers=4, objective="makespan"), all_batches, True),
    "fsdp": (fsdp_problems(max_layers=2), every_plan, False),
    "overlap": (drawn_problems("overlap", 2), all_plans, False),
}
"""Small problems, all plans of one, and whether the best over scenarios is always found."""


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=40)
@given(data=st.data(), outlook=outlooks)
def test_no_plan_is_below_the_bound_over_scenarios(
    name: str, data: st.DataObject, outlook: Outlook
) -> None:
    family: Family[Any, Any, Any] = CASES[name].family
    drawn, every, exact = EVERY[name]
    problem = data.draw(drawn)
    least = least_value(family, problem, outlook, every)
    result, prospect = robust_plan(family, problem, outlook, NEVER)
    assert (least is None) == (prospect is None) == (result.plan is None)
    if prospect is None or least is None:
        return
    assert prospect.bound <= least <= prospect.value
    if exact:
        assert least == prospect.value


def least_value(
    family: Family[Any, Any, Any],
    problem: Any,
    outlook: Outlook,
    every: Callable[[Any], Iterator[Any]],
) -> Fraction | None:
    """Return the least value of all plans that cost little more than the best; None without any."""
    priced = []
    for plan in every(problem):
        try:
            priced.append((family.price(problem, plan), plan))
        except InvalidPlanError:
            continue
    if not priced:
        return None
    most = MOST * min(time for time, _ in priced)
    variants = [family.perturb(problem, scenario) for scenario, _ in outlook.scenarios]
    return min(
        outlook.of([family.price(variant, plan) for variant in variants])
        for time, plan in priced
        if time <= most
    )


@robust_families
def test_times_in_other_units_have_the_same_plan(name: str) -> None:
    """Perturbing all times is how the units change; the smaller one leaves nothing to round."""
    family = CASES[name].family

    def made(factor: int) -> Any:
        unit = Scenario(
            computation=Fraction(factor), startup=Fraction(factor), bandwidth=Fraction(1, factor)
        )
        problem = family.perturb(CASES[name].example, unit)
        result, prospect = robust_plan(family, problem, SLOWER, NEVER)
        assert prospect is not None
        return result.plan, prospect.value / factor, prospect.bound / factor, prospect.usual_ns

    plan, value, bound, usual_ns = made(60)
    again, same_value, same_bound, longer_ns = made(240)
    assert (value, bound, 4 * usual_ns) == (same_value, same_bound, longer_ns)
    if name == "yan":
        plan, again = plan.configuration, again.configuration
    if name not in ("caramel", "iteration"):  # whose plans hold times
        assert plan == again


def test_a_problem_with_scenarios_without_meaning_is_refused_before_it_is_planned() -> None:
    wrong = Outlook(((Scenario(), Fraction(1)), (Scenario(late=Fraction(1)), Fraction(1))))
    with pytest.raises(InvalidInputError) as refused:
        robust_plan(overlap.OVERLAP, CASES["overlap"].example, wrong, Deadline(0))
    assert refused.value.path == "scenarios[1].late"


def test_a_configuration_for_scenarios_has_the_nominal_price() -> None:
    """Plans of yan hold prices: those of the scenarios they were made for are of no use."""
    example = CASES["yan"].example
    problem = replace(
        example,
        machines=7,
        read_every=50,
        top=1,  # so that another plan comes from a scenario
        constants=replace(
            example.constants,
            muladd_ns=Fraction(5),
            latency_ns=[Fraction(5), Fraction(600)],
            nic_bits_per_s=Fraction(10**8),
        ),
    )
    slow = Scenario(bandwidth=Fraction(1, 16)), Scenario(startup=Fraction(16))
    outlook = Outlook(((Scenario(), Fraction(1)), *((one, Fraction(5)) for one in slow)))
    check_robust(yan.YAN, problem, outlook)
    result, prospect = robust_plan(yan.YAN, problem, outlook, NEVER)
    assert result.plan is not None
    assert prospect is not None
    assert prospect.value < prospect.usual_value
    assert len(result.plan.ranking) == 1


def test_the_bound_of_fewer_choices_is_none_of_all() -> None:
    """Plans for a scenario are sought in the mode of the usual plan; the other is faster there."""
    cluster = Cluster("four", "", 4, Switch(4), Nic(Fraction(10**9), 1000), memory_bytes=10**6)
    problem = replace(CASES["iteration"].example, cluster=cluster)
    cheap = Scenario(startup=Fraction(1, 100))
    _, prospect = robust_plan(iteration.ITERATION, problem, Outlook(((cheap, Fraction(1)),)), NEVER)
    other = iteration.ITERATION.perturb(problem, cheap)
    best_ns = iteration.solve(other).objective_ns
    usual = iteration.solve(problem).plan
    assert usual is not None
    narrow = iteration.solve(iteration.ITERATION.narrow(other, usual)).lower_bound_ns
    assert prospect is not None
    assert best_ns is not None
    assert narrow is not None
    assert prospect.bound <= best_ns < narrow
