"""Regret and plans for scenarios mean the same in every family that has scenarios.

Each plan is priced apart from the family. Plans of all kinds are oracles in the families' folders.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.caramel import CARAMEL
from planner.families.ibatch import IBATCH
from planner.families.iteration import ITERATION
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.solving.advice import advise
from planner.solving.deadline import NEVER, Deadline
from planner.solving.family import Family
from planner.solving.methods import Outcome
from planner.solving.scenarios import LONGER, MOST, SCENARIOS, Outlook, Scenario, measured
from planner.solving.what_if import regrets, robust_plan
from tests.caramel import test_what_if as caramel
from tests.ibatch import test_what_if as ibatch
from tests.iteration import test_what_if as iteration
from tests.outlooks import counted, outlooks
from tests.words import Words

MEASURED = st.sampled_from([measured(), measured(Fraction(90))])


@dataclass(frozen=True)
class Case:
    """A family, and what its tests know of it."""

    family: Family[Any, Any, Any]
    problems: st.SearchStrategy[Any]
    outlooks: st.SearchStrategy[Outlook]
    methods: tuple[str, ...]
    # What a plan of a problem lasts in a scenario, worked out apart from the family.
    lasts: Callable[[Any, Any, Scenario], int | Fraction]
    small: Callable[[], Any]
    large: Callable[[], Any]  # a problem that has no room for start-ups twice as long


CASES = {
    "ibatch": Case(
        IBATCH,
        ibatch.spread_problems(),
        outlooks() | MEASURED,
        ("auto", "greedy", "layer_by_layer", "one_batch", "mg_wfbp", "ddp"),
        ibatch.takes,
        ibatch.small,
        ibatch.large,
    ),
    "caramel": Case(
        CARAMEL,
        caramel.problems(),
        outlooks(),
        ("auto", "caramel", "ddp", "layer_by_layer", "bytescheduler"),
        caramel.takes,
        caramel.small,
        caramel.large,
    ),
    "iteration": Case(
        ITERATION,
        iteration.spread_problems(one_order=True) | iteration.spread_problems(),
        outlooks() | MEASURED,
        ("auto", "ddp", "layer_by_layer", "ps", "bytescheduler", "caramel", "ibatch"),
        iteration.takes,
        iteration.small,
        iteration.large,
    ),
}
PRICED = ["ibatch", "caramel", pytest.param("iteration", marks=pytest.mark.slow)]


def planned(family: Family[Any, Any, Any], problem: Any, method: str) -> tuple[Any, int | None]:
    """Return a method's plan and its cost, if it applies and there is one."""
    try:
        result = family.solve(problem, method=method)
    except NotApplicableError:
        return None, None
    return result.plan, result.objective_ns


@pytest.mark.parametrize("name", PRICED)
@settings(max_examples=60)
@given(st.data())
def test_every_row_of_regret_is_priced_and_bounded(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    problem = data.draw(case.problems)
    plan, _ = planned(case.family, problem, data.draw(st.sampled_from(case.methods)))
    if plan is None:
        return
    rows = regrets(case.family, problem, plan, NEVER)
    assert [row.scenario for row in rows] == list(SCENARIOS)
    for row in rows:
        assert row.plan_ns == case.lasts(problem, plan, row.scenario)
        other = case.family.perturb(problem, row.scenario)
        for method, time in (("ddp", row.ddp_ns), ("layer_by_layer", row.layers_ns)):
            rule, costs = planned(case.family, other, method)
            assert time == costs
            if rule is not None:
                assert time == case.lasts(problem, rule, row.scenario)
        anew = case.family.solve(other)
        times = (row.plan_ns, anew.objective_ns, row.ddp_ns, row.layers_ns)
        assert row.best_ns == min(time for time in times if time is not None)
        assert anew.lower_bound_ns is not None
        assert row.bound_ns == min(anew.lower_bound_ns, row.best_ns)
        assert row.at_most is None or 1 <= row.at_least <= row.at_most


@pytest.mark.parametrize("name", PRICED)
@settings(max_examples=60)
@given(st.data())
def test_a_plan_for_scenarios_costs_what_it_says_and_none_is_below_the_bound(
    name: str, data: st.DataObject
) -> None:
    case, one_order = CASES[name], data.draw(st.booleans())
    problems = case.problems
    if name == "iteration":
        problems = iteration.spread_problems(one_order=one_order)
    problem, outlook = data.draw(problems), data.draw(case.outlooks)
    usual = case.family.solve(problem)
    result, prospect = robust_plan(case.family, problem, outlook, NEVER)
    if usual.plan is None:
        assert result.plan is None
        assert prospect is None
        return
    assert result.plan is not None
    assert prospect is not None

    def of(plan: Any) -> Fraction:
        return counted(outlook, [case.lasts(problem, plan, one) for one, _ in outlook.scenarios])

    assert prospect.value == of(result.plan)
    assert prospect.usual_value == of(usual.plan)
    assert prospect.usual_ns == usual.objective_ns
    assert prospect.bound <= prospect.value <= prospect.usual_value
    case.family.check(problem, result.plan, NEVER)
    assert result.objective_ns is not None
    assert result.objective_ns == case.lasts(problem, result.plan, Scenario())
    assert result.objective_ns <= MOST * prospect.usual_ns
    assert result.lower_bound_ns is not None
    assert result.lower_bound_ns <= result.objective_ns
    again, repeated = robust_plan(case.family, problem, outlook, NEVER)
    assert (again.plan, repeated) == (result.plan, prospect)
    if name == "iteration" and not one_order:  # whose bounds are those of an op order
        return
    scenarios = [scenario for scenario, _ in outlook.scenarios]
    others = [case.family.solve(case.family.perturb(problem, one)) for one in scenarios]
    assert prospect.bound <= counted(
        outlook,
        [case.lasts(problem, one.plan, at) for one, at in zip(others, scenarios, strict=True)],
    )
    for method in case.methods:
        plan, _ = planned(case.family, problem, method)
        assert plan is None or prospect.bound <= of(plan)


@pytest.mark.parametrize("name", CASES)
def test_what_there_is_no_time_for_is_left_out(name: str) -> None:
    family, problem = CASES[name].family, CASES[name].small()
    result = family.solve(problem)
    over = Deadline(1e-9)
    while not over.passed:
        pass
    assert regrets(family, problem, result.plan, over) == ()
    assert advise(family, problem, result, over) is None
    robust, prospect = robust_plan(
        family, problem, Outlook(((SCENARIOS[0], Fraction(1)),)), Deadline.of(1e-9)
    )
    assert robust.plan is not None
    assert prospect is not None
    assert 0 < prospect.bound <= prospect.value


@pytest.mark.parametrize("name", CASES)
def test_a_scenario_whose_numbers_are_too_large_is_left_out_or_named(name: str) -> None:
    family, problem = CASES[name].family, CASES[name].large()
    plan = family.solve(problem).plan
    kept = [row.scenario for row in regrets(family, problem, plan, NEVER)]
    assert kept == [scenario for scenario in SCENARIOS if scenario.startup != 2]
    double = Scenario(startup=Fraction(2))
    outlook = Outlook(((Scenario(), Fraction(1)), (double, Fraction(1))))
    with pytest.raises(InvalidInputError) as refused:
        robust_plan(family, problem, outlook, NEVER)
    assert refused.value.path.startswith("scenarios[1]")


def test_a_family_s_candidates_follow_from_every_plan_that_is_made() -> None:
    """The usual one, those of the scenarios, and of longer times."""
    scenario = SCENARIOS[0]
    names = {Scenario(): "a problem", scenario: "of it", **dict.fromkeys(LONGER, "longer")}
    assert len(names) == 2 + len(LONGER)
    seen: list[str] = []

    class Disturbed(Words):
        def perturb(self, problem: str, scenario: Scenario) -> str:
            return names[scenario]

        def candidates(self, problem: str, plans: Sequence[str], _: Deadline) -> Iterator[str]:
            seen.extend(plans)
            yield from (f"{plan}!" for plan in plans)

    def auto(problem: str, _: Deadline) -> Outcome[str]:
        return Outcome(f"for {problem}", 0)

    plans = ["for a problem", "for of it", "for longer"]
    family = Disturbed({**dict.fromkeys(plans, 100), "for longer!": 99}, {"auto": auto})
    result, _ = robust_plan(family, "a problem", Outlook(((scenario, Fraction(1)),)), NEVER)
    assert list(dict.fromkeys(seen)) == plans
    assert result.plan == "for longer!"


@given(outlooks(), st.data())
def test_what_counts_of_times(outlook: Outlook, data: st.DataObject) -> None:
    count = len(outlook.scenarios)
    times = data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    assert outlook.of(times) == counted(outlook, times)
    longer = [time + data.draw(st.integers(0, 2)) for time in times]
    assert outlook.of(longer) >= outlook.of(times)


@pytest.mark.parametrize(
    ("scenarios", "percentile", "path"),
    [
        ((), None, "scenarios"),
        (((Scenario(), 0),), None, "scenarios[0].weight"),
        (((Scenario(), 1),), 0, "percentile"),
        (((Scenario(), 1),), 101, "percentile"),
    ],
)
def test_what_cannot_be_is_refused(scenarios: object, percentile: object, path: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        Outlook(scenarios, percentile)  # type: ignore[arg-type]
    assert refused.value.path == path
