"""Progress, cancelling and old plans mean the same in every family."""

import threading
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given

import planner
from planner.families import caramel, ibatch, iteration
from planner.families.iteration.transfers import adapt, refit
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph
from planner.solving.deadline import NEVER, Deadline, Incumbent, TimeUpError
from planner.solving.methods import REPLAN, Outcome
from tests.jsonio.test_iteration import REQUEST as ITERATION
from tests.jsonio.test_plan_files import METHODS as REQUESTS
from tests.strategies import problems
from tests.test_methods import FAMILIES, problem_of
from tests.test_programs import CARAMEL, IBATCH
from tests.words import Words

METHODS = [(name, method) for name, family in FAMILIES.items() for method in family.methods]


@pytest.mark.parametrize(("family", "method"), METHODS)
def test_incumbents_get_better_and_end_with_the_result(family: str, method: str) -> None:
    solve, problem = FAMILIES[family].solve, problem_of(family)
    told: list[Incumbent[Any]] = []
    try:
        result = solve(problem, method=method, on_progress=told.append)
    except NotApplicableError:
        return
    if result.plan is None:
        assert not told
        return
    last = told[-1]
    assert (last.plan, last.objective_ns) == (result.plan, result.objective_ns)
    objectives = [incumbent.objective_ns for incumbent in told]
    bounds = [incumbent.lower_bound_ns or 0 for incumbent in told]
    assert objectives == sorted(objectives, reverse=True)
    assert bounds == sorted(bounds)
    assert all(bound <= cost for bound, cost in zip(bounds, objectives, strict=True))
    for incumbent in told:  # each is a plan, at the price that is told
        kept = solve(problem, method=REPLAN, start=incumbent.plan)
        assert kept.objective_ns is not None
        assert kept.objective_ns <= incumbent.objective_ns


@pytest.mark.parametrize("family", FAMILIES)
def test_who_cancels_at_an_incumbent_gets_one_as_good(family: str) -> None:
    cancel, told = threading.Event(), list[int]()

    def stop(incumbent: Incumbent[Any]) -> None:
        told.append(incumbent.objective_ns)
        cancel.set()

    solve = FAMILIES[family].solve
    result = solve(problem_of(family), cancel=cancel, on_progress=stop)
    assert result.objective_ns is not None
    assert result.objective_ns <= told[0]


def test_what_a_callback_raises_ends_the_search() -> None:
    def stop(_: Incumbent[Any]) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        ibatch.solve(problem_of("ibatch"), on_progress=stop)


@given(problems(objective="makespan"), problems(objective="makespan"))
def test_an_old_plan_is_no_better_than_the_best_and_no_worse_than_it_was(
    before: ibatch.Problem, problem: ibatch.Problem
) -> None:
    """The exact method is the oracle; it is held against brute force elsewhere."""
    old = ibatch.solve(before)
    if old.plan is None:
        return
    again = ibatch.solve(problem, method=REPLAN, start=old.plan)
    if again.plan is None:
        assert again.infeasibility is not None
        assert again.infeasibility.binding == ("start_plan",)
        return
    best = ibatch.solve(problem)
    assert best.objective_ns is not None
    assert again.objective_ns is not None
    assert best.objective_ns <= again.objective_ns
    assert again.objective_ns <= ibatch.evaluate(problem, old.plan).makespan_ns


def changed(graph: Graph, times: int, sizes: int) -> Graph:
    """Every third op and parameter is another."""
    ops = [
        replace(op, duration_ns=op.duration_ns * times) if place % 3 == 0 else op
        for place, op in enumerate(graph.ops)
    ]
    parameters = [
        replace(parameter, size_bytes=parameter.size_bytes * sizes) if place % 3 == 1 else parameter
        for place, parameter in enumerate(graph.parameters)
    ]
    return Graph(tuple(ops), tuple(parameters))


@pytest.mark.parametrize(("times", "sizes"), [(3, 1), (1, 2), (0, 3)])
@pytest.mark.parametrize("kind", ["caramel", "replicated", "sharded"])
def test_other_numbers_leave_a_plan_near_the_best(kind: str, times: int, sizes: int) -> None:
    profile = planner.read_profile("data/profiles/lenet5.json")
    problem: Any
    family: Any
    if kind == "caramel":
        family, cost = caramel, planner.AffineCost(50_000, Fraction(7, 5))
        problem = caramel.Problem.from_profile(profile, cost)
    else:
        family, cluster = iteration, planner.read_cluster("caramel-16")
        problem = iteration.Problem.from_profile(profile, cluster, modes=[kind])
    old = family.solve(problem)
    other = replace(problem, graph=changed(problem.graph, times, sizes))
    again, best = family.solve(other, method=REPLAN, start=old.plan), family.solve(other)
    assert again.method == REPLAN
    assert best.lower_bound_ns <= again.objective_ns <= 1.05 * best.objective_ns
    if again.lower_bound_ns is not None:
        assert again.lower_bound_ns <= again.objective_ns


def test_an_old_plan_keeps_its_shares_of_parameters() -> None:
    profile = planner.read_profile("data/profiles/lenet5.json")
    problem = iteration.Problem.from_profile(profile, planner.read_cluster("caramel-16"))
    plan = iteration.solve(problem, method="ddp").plan
    assert plan is not None
    other = replace(problem, graph=changed(problem.graph, 1, 5), pull_bytes=None)
    made = refit(other, adapt(other, plan), NEVER).plan
    assert made is not None
    carried = {part.parameter for transfer in made.transfers for part in transfer.parts}
    assert carried == set(range(len(problem.graph.parameters)))
    iteration.check(other, made)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_no_plan_of_the_family_is_refused(family: str) -> None:
    solve = FAMILIES[family].solve
    with pytest.raises(InvalidInputError, match="start: expected a plan"):
        solve(problem_of(family), start=7)
    with pytest.raises(InvalidInputError, match="start: missing"):
        solve(problem_of(family), method=REPLAN)


@pytest.mark.parametrize("family", REQUESTS)
def test_a_kept_plan_starts_another_request(family: str) -> None:
    request = {**REQUESTS[family][0], "with_plan": False}
    told: list[Incumbent[Any]] = []
    first = planner.solve({**request, "with_plan": True, "progress": True}, on_progress=told.append)
    assert told
    assert first["plan"]["kind"].startswith(f"{family}.")
    assert told[-1].objective_ns == first["objective_ns"]
    again = planner.solve({**request, "method": "replan", "start_plan": first["plan"]})
    assert again["objective_ns"] == first["objective_ns"]
    without = planner.solve(request)
    assert "plan" not in without
    assert without["objective_ns"] == first["objective_ns"]


def test_a_plan_of_another_family_is_refused() -> None:
    plan = planner.solve({**REQUESTS["ibatch"][0], "with_plan": True})["plan"]
    answer = planner.solve({**REQUESTS["caramel"][0], "start_plan": plan})
    assert answer["error"]["path"] == "start_plan.kind"


def test_a_plan_whose_bound_comes_too_late_is_kept_without_one() -> None:
    class Late(Words):
        def bound(self, *_: object) -> tuple[None, bool]:
            raise TimeUpError

    def method(_: str, deadline: Deadline) -> Outcome[str]:
        deadline.offer("good")
        raise TimeUpError

    family = Late({"good": 5}, {"m": method})
    result = family.solve("a problem", method="m", on_progress=lambda _: None)
    assert (result.plan, result.objective_ns, result.lower_bound_ns) == ("good", 5, None)
    assert result.timed_out


def test_plans_that_are_told_of_are_checked_within_the_limit() -> None:
    told: list[int] = []

    class Slow(Words):
        def check(self, problem: str, plan: str, deadline: Deadline) -> None:
            assert deadline.remaining_s is not None
            if plan == "large":
                raise TimeUpError

    def method(_: str, deadline: Deadline) -> Outcome[str]:
        deadline.offer("large")
        deadline.offer("small")
        return Outcome("small", 5)

    result = Slow({"small": 5}, {"m": method}).solve(
        "a problem",
        method="m",
        time_limit=60,
        on_progress=lambda incumbent: told.append(incumbent.objective_ns),
    )
    assert told == [5, 5]
    assert result.plan == "small"


def test_an_old_plan_that_there_is_no_time_to_improve_is_left() -> None:
    class Late(Words):
        def improve(self, *_: object) -> Outcome[str]:
            raise TimeUpError

    family = Late({"good": 5, "old": 4}, {"m": lambda *_: Outcome("good", 5)})
    assert family.solve("a problem", method="m", start="old").plan == "good"


@pytest.mark.parametrize("request_", [CARAMEL, IBATCH, ITERATION], ids=lambda it: it["problem"])
def test_a_plan_chosen_for_scenarios_is_kept(request_: dict[str, Any]) -> None:
    asked = {**request_, "scenarios": [{"startup": 2}], "with_plan": True}
    answer = planner.solve(asked)
    again = planner.solve({**request_, "start_plan": answer["plan"], "method": "replan"})
    assert again["objective_ns"] <= answer["objective_ns"]
