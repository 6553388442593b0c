"""Regret, and plans for several scenarios, in every family that can be perturbed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families import caramel, iteration, yan
from planner.model.clusters import Nic
from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.solving.advice import advise
from planner.solving.deadline import NEVER, Deadline
from planner.solving.family import Family
from planner.solving.result import Result, Status
from planner.solving.scenarios import SCENARIOS, ExpectedCost, Scenario, ScenarioSet, measured
from planner.solving.what_if import regrets, robust_plan
from planner.testing import graphs
from planner.testing import problems as drawn_problems
from tests.caramel import test_what_if as of_caramel
from tests.formats.refused import refused
from tests.fsdp.making import every_plan
from tests.fsdp.making import problems as fsdp_problems
from tests.ibatch import test_what_if as of_ibatch
from tests.iteration import test_what_if as of_iteration
from tests.oracles import all_boundaries
from tests.outlooks import counted, outlooks
from tests.overlap.slow import all_plans
from tests.perturbed import CASES, Case
from tests.present import present
from tests.strategies import affine_costs

QUICK = {
    *("auto", "caramel", "greedy", "ibatch"),
    *("bytescheduler", "ddp", "layer_by_layer", "mg_wfbp", "one_batch", "ps"),
}
"""Methods that are quick, and whose plans are held against a bound."""

ROBUST = [name for name, case in CASES.items() if case.robust]
REFUSED = {"bandwidth": Fraction(2), "late": 1, "spread": 1, "part": "first"}

factors = st.sampled_from([Fraction(1, 2), Fraction(4, 5), Fraction(1), Fraction(2)])
scenarios = st.builds(Scenario, factors, factors, factors)
plain_outlooks = st.builds(
    ScenarioSet,
    st.lists(st.tuples(scenarios, st.integers(1, 3)), min_size=1, max_size=3).map(tuple),
    st.none() | st.sampled_from([Fraction(50), Fraction(90), Fraction(100)]),
)
"""Of what all families know."""
spreads = st.sampled_from([measured(), measured(Fraction(90))])

SLOWER = ScenarioSet(
    (
        (Scenario(), Fraction(2)),
        (Scenario(computation=Fraction(3, 2)), Fraction(1)),
        (Scenario(bandwidth=Fraction(1, 4)), Fraction(1)),
        (Scenario(startup=Fraction(4)), Fraction(1)),
    )
)

SMALL: dict[str, st.SearchStrategy[Any]] = {
    "ibatch": of_ibatch.spread_problems(6),
    "fsdp": fsdp_problems(max_layers=2),
    "caramel": st.builds(caramel.Problem, graph=graphs(), cost=affine_costs()),
    **{name: drawn_problems(name, 2) for name in ("overlap", "bml", "yan", "bigdl", "drizzle")},
}

EVERY: dict[str, Callable[[Any], Iterator[Any]]] = {
    "ibatch": lambda problem: map(problem.plan, all_boundaries(problem)),
    "fsdp": every_plan,
    "overlap": all_plans,
}
"""All plans of a small problem."""

APART: dict[str, st.SearchStrategy[Any]] = {
    "ibatch": of_ibatch.spread_problems(),
    "caramel": of_caramel.problems(),
    "iteration": of_iteration.spread_problems(one_order=True) | of_iteration.spread_problems(),
}
"""Problems of families whose plans are priced in a scenario apart from them."""

Lasts = Callable[[Any, Any, Scenario], int | Fraction]
BESIDE = {"ibatch": of_ibatch, "caramel": of_caramel, "iteration": of_iteration}
"""The time of a plan in a scenario, and problems that have no room for start-ups twice as long."""


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=40)
@given(data=st.data())
def test_robust_plans_and_regret_of_small_problems(name: str, data: st.DataObject) -> None:
    """No plan that is close enough to the best nominal one is below the bound over scenarios."""
    case = CASES[name]
    family, problem = case.family, data.draw(SMALL[name])
    outlook = data.draw(plain_outlooks | spreads if name == "ibatch" else plain_outlooks)
    assert family.perturb(problem, Scenario()) == problem
    check_regret(case, problem, scenarios=[data.draw(st.sampled_from(family.scenarios))])
    if not case.robust:
        return
    found = check_robust(family, problem, outlook, family.solve(problem))
    if name not in EVERY:
        return
    priced = []
    for plan in EVERY[name](problem):
        with suppress(InvalidPlanError):
            priced.append((family.price(problem, plan), plan))
    assert (not priced) == (found is None)
    if found is None:
        return
    result, prospect = found
    best = min(time for time, _ in priced)
    most = family.max_loss * best
    variants = [family.perturb(problem, scenario) for scenario, _ in outlook.scenarios]
    least = min(
        outlook.of([family.price(variant, plan) for variant in variants])
        for time, plan in priced
        if time <= most
    )
    assert prospect.bound <= least <= prospect.value
    if name == "ibatch":
        assert (prospect.value, prospect.usual_ns, result.lower_bound_ns) == (least, best, best)


@pytest.mark.parametrize("name", CASES)
def test_robust_plans_and_regret_by_hand(name: str) -> None:
    case = CASES[name]
    check_regret(case, case.example)
    if case.robust:
        check_robust(case.family, case.example, SLOWER, case.family.solve(case.example))
    for field in case.refused:  # before anything is planned
        wrong = Scenario(), Scenario(**{field: REFUSED[field]})  # type: ignore[arg-type]
        outlook = ScenarioSet(tuple((scenario, Fraction(1)) for scenario in wrong))
        with refused(f"scenarios[1].{field}", ""):
            robust_plan(case.family, case.example, outlook, Deadline(0))


@pytest.mark.parametrize(
    "name", ["ibatch", "caramel", pytest.param("iteration", marks=pytest.mark.slow)]
)
@settings(max_examples=60)
@given(data=st.data())
def test_robust_plans_and_regret_are_priced_apart_from_the_family(
    name: str, data: st.DataObject
) -> None:
    family, lasts = CASES[name].family, BESIDE[name].takes
    problem = data.draw(APART[name])
    quick = sorted(QUICK & {*family.methods})
    method = data.draw(st.sampled_from(quick))
    few = data.draw(st.lists(st.sampled_from(family.scenarios), min_size=1, max_size=2))
    check_regret(CASES[name], problem, method, few, lasts)
    outlook = data.draw(outlooks() | spreads)
    usual = family.solve(problem)
    found = check_robust(family, problem, outlook, usual)
    assert (usual.plan is None) == (found is None)
    if found is None:
        return
    result, prospect = found
    again, repeated = robust_plan(family, problem, outlook, NEVER)
    assert (again.plan, repeated) == (result.plan, prospect)

    def value_of(plan: Any) -> Fraction:
        return counted(outlook, [lasts(problem, plan, one) for one, _ in outlook.scenarios])

    assert lasts(problem, result.plan, Scenario()) == result.objective_ns
    assert value_of(result.plan) == prospect.value
    assert value_of(usual.plan) == prospect.usual_value
    assert result.lower_bound_ns is not None
    if name == "iteration" and problem.op_order is None:  # bounds are those of an op order
        return
    plans = [planned(family, problem, method)[0] for method in quick]
    assert all(prospect.bound <= value_of(plan) for plan in plans if plan is not None)
    scenarios = [scenario for scenario, _ in outlook.scenarios]
    best = [family.solve(family.perturb(problem, scenario)).plan for scenario in scenarios]
    assert prospect.bound <= counted(
        outlook, [lasts(problem, plan, at) for plan, at in zip(best, scenarios, strict=True)]
    )


def check_robust(
    family: Family[Any, Any, Any], problem: Any, outlook: ScenarioSet, usual: Result[Any, Any]
) -> tuple[Result[Any, Any], ExpectedCost] | None:
    result, prospect = robust_plan(family, problem, outlook, NEVER, usual)
    if result.plan is None:
        assert prospect is None
        return None
    assert prospect is not None
    assert prospect.bound <= prospect.value <= prospect.usual_value
    family.check(problem, result.plan, NEVER)
    cost = family.price(problem, result.plan)
    assert (result.objective_ns, prospect.usual_ns) == (cost, usual.objective_ns)
    assert cost <= family.max_loss * prospect.usual_ns
    if usual.status == Status.OPTIMAL:
        assert prospect.usual_ns <= cost
    if family.name not in ("caramel", "iteration"):  # whose bounds are those of an op order
        assert (usual.lower_bound_ns or 0) <= cost
        variants = [family.perturb(problem, scenario) for scenario, _ in outlook.scenarios]
        bounds = [family.solve(variant).lower_bound_ns or 0 for variant in variants]
        assert prospect.bound == min(outlook.of(bounds), prospect.value)
    fixed = family.fix_order(problem, result.plan)
    variants = [family.perturb(fixed, scenario) for scenario, _ in outlook.scenarios]
    times = [family.price(it, family.repriced(it, result.plan)) for it in variants]
    assert outlook.of(times) == prospect.value
    return result, prospect


def planned(family: Family[Any, Any, Any], problem: Any, method: str) -> tuple[Any, int | None]:
    """Return a method's plan and its cost, if it is there, applies and finds one."""
    with suppress(NotApplicableError):
        if method in family.methods:
            result = family.solve(problem, method=method)
            return result.plan, result.objective_ns
    return None, None


def check_regret(
    case: Case,
    problem: Any,
    method: str = "auto",
    scenarios: Sequence[Scenario] | None = None,
    lasts: Lasts | None = None,
) -> None:
    family = case.family
    plan, _ = planned(family, problem, method)
    if plan is None:
        return
    rows = regrets(family, problem, plan, NEVER, scenarios=scenarios)
    meant = [
        scenario
        for scenario in (family.scenarios if scenarios is None else scenarios)
        if all(getattr(scenario, field) == getattr(Scenario(), field) for field in case.refused)
    ]
    if lasts or family.name not in ("iteration", "drizzle"):  # there a plan may break a limit
        assert [row.scenario for row in rows] == meant
    for row in rows:
        other = family.perturb(problem, row.scenario)
        assert row.plan_ns == family.price(other, family.repriced(other, plan))
        assert not lasts or row.plan_ns == lasts(problem, plan, row.scenario)
        for rule, time in (("ddp", row.ddp_ns), ("layer_by_layer", row.layers_ns)):
            made, cost = planned(family, other, rule)
            assert time == cost
            assert made is None or not lasts or time == lasts(problem, made, row.scenario)
        anew = family.solve(other)
        times = (row.plan_ns, anew.objective_ns, row.ddp_ns, row.layers_ns)
        assert row.best_ns == min(time for time in times if time is not None)
        assert row.bound_ns == min(present(anew.lower_bound_ns), row.best_ns)
        assert row.at_most is None or 1 <= row.at_least <= row.at_most


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
    outlook = ScenarioSet(((Scenario(), Fraction(1)), *((one, Fraction(5)) for one in slow)))
    result, prospect = present(check_robust(yan.YAN, problem, outlook, yan.solve(problem)))
    assert prospect.value < prospect.usual_value
    assert len(present(result.plan).ranking) == 1


def test_the_bound_of_fewer_choices_is_none_of_all() -> None:
    """Plans for a scenario are sought in the mode of the usual plan; the other is faster there."""
    example = CASES["iteration"].example
    nic = Nic(Fraction(10**9), 10_000)
    problem = replace(example, cluster=replace(example.cluster, nic=nic))
    cheap = Scenario(startup=Fraction(1, 100))
    family: Family[Any, Any, Any] = iteration.ITERATION
    _, prospect = robust_plan(family, problem, ScenarioSet(((cheap, Fraction(1)),)), NEVER)
    other = family.perturb(problem, cheap)
    best_ns = present(family.solve(other).objective_ns)
    narrow = family.solve(family.narrow(other, family.solve(problem).plan)).lower_bound_ns
    assert present(prospect).bound <= best_ns < (narrow or 0)


@pytest.mark.parametrize("name", ROBUST)
def test_what_there_is_no_time_for_is_left_out(name: str) -> None:
    family, problem = CASES[name].family, CASES[name].example
    result = family.solve(problem)
    over = Deadline(1e-9)
    assert regrets(family, problem, result.plan, over) == ()
    assert advise(family, problem, result, over) is None
    outlook = ScenarioSet(((SCENARIOS[0], Fraction(1)),))
    robust, prospect = robust_plan(family, problem, outlook, Deadline.of(1e-9))
    assert robust.plan is not None
    assert 0 <= present(prospect).bound <= present(prospect).value
    assert present(prospect).bound or name not in BESIDE


@pytest.mark.parametrize("name", BESIDE)
def test_a_scenario_whose_numbers_are_too_large_is_left_out_or_named(name: str) -> None:
    family, problem = CASES[name].family, BESIDE[name].large()
    plan = family.solve(problem).plan
    kept = [row.scenario for row in regrets(family, problem, plan, NEVER)]
    assert kept == [scenario for scenario in SCENARIOS if scenario.startup != 2]
    double = Scenario(startup=Fraction(2))
    outlook = ScenarioSet(((Scenario(), Fraction(1)), (double, Fraction(1))))
    with pytest.raises(InvalidInputError, match=r"^scenarios\[1\]"):
        robust_plan(family, problem, outlook, NEVER)
