"""Progress, cancelling, old plans and limits mean the same in every family.

A start plan of another problem is ignored with a warning, or infeasible with the reason. Limits are
tried below the least that is possible, at it, and above it.
"""

import json
import threading
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.families import caramel, ibatch, iteration
from planner.families.iteration import transfers
from planner.jsonio import PROBLEMS, decode_answer
from planner.jsonio.results import decode_plan, encode_plan
from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.model.graphs import Graph
from planner.solving.deadline import Incumbent
from planner.solving.methods import REPLAN, without_auto
from planner.testing import problems as drawn_problems
from tests import large, schemas
from tests.contract.test_every_method import FAMILIES
from tests.fuzzing.oddities import mutated
from tests.jsonio.requests import BASES, ITERATION, Request, patched, told
from tests.jsonio.test_plan_files import DRIZZLE, FSDP, IBATCH, OVERLAP
from tests.jsonio.test_plan_files import METHODS as REQUESTS
from tests.present import present
from tests.test_numbers import PROBLEMS as NUMBERS


def kept(request: Request) -> Any:
    return planner.solve({**request, "with_plan": True})["plan"]


def replanned(request: Request, plan: Any) -> Any:
    return planner.solve({**request, "start_plan": plan, "method": REPLAN})


METHODS = [(name, method) for name, family in FAMILIES.items() for method in family.methods]


@pytest.mark.parametrize(("family", "method"), METHODS)
def test_incumbents_get_better_and_end_with_the_result(family: str, method: str) -> None:
    solve, problem = FAMILIES[family].solve, NUMBERS[family]
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
        assert present(kept.objective_ns) <= incumbent.objective_ns


@pytest.mark.parametrize("family", FAMILIES)
def test_who_cancels_at_an_incumbent_gets_one_as_good(family: str) -> None:
    cancel, told = threading.Event(), list[int]()

    def stop(incumbent: Incumbent[Any]) -> None:
        told.append(incumbent.objective_ns)
        cancel.set()

    result = FAMILIES[family].solve(NUMBERS[family], cancel=cancel, on_progress=stop)
    assert present(result.objective_ns) <= told[0]


def test_what_a_callback_raises_ends_the_search() -> None:
    with pytest.raises(KeyError, match="enough"):
        ibatch.solve(NUMBERS["ibatch"], on_progress=Mock(side_effect=KeyError("enough")))


def changed(graph: Graph, times: int, sizes: int) -> Graph:
    """Every third op and parameter is another."""
    ops, parameters = list(graph.ops), list(graph.parameters)
    ops[::3] = [replace(op, duration_ns=op.duration_ns * times) for op in ops[::3]]
    parameters[1::3] = [replace(one, size_bytes=one.size_bytes * sizes) for one in parameters[1::3]]
    return Graph(tuple(ops), tuple(parameters))


@pytest.mark.parametrize(("times", "sizes"), [(3, 1), (1, 2), (0, 3)])
@pytest.mark.parametrize("kind", ["caramel", "replicated", "sharded"])
def test_other_numbers_leave_a_plan_near_the_best(kind: Any, times: int, sizes: int) -> None:
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
    assert (again.lower_bound_ns or 0) <= again.objective_ns


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_no_plan_of_the_family_is_refused(family: str) -> None:
    solve = FAMILIES[family].solve
    with pytest.raises(InvalidInputError, match="start: expected a plan"):
        solve(NUMBERS[family], start=7)
    with pytest.raises(InvalidInputError, match="start: missing"):
        solve(NUMBERS[family], method=REPLAN)
    plan = kept(REQUESTS["caramel" if family == "ibatch" else "ibatch"][0])
    answer = planner.solve({**REQUESTS[family][0], "start_plan": plan})
    assert answer["error"]["path"] == "start_plan.kind"


@pytest.mark.parametrize("family", PROBLEMS)
def test_a_kept_plan_starts_another_request_and_is_not_warned_of(family: str) -> None:
    request = {**REQUESTS[family][0], "with_plan": False}
    told: list[Incumbent[Any]] = []
    first = planner.solve({**request, "with_plan": True, "progress": True}, on_progress=told.append)
    assert told
    assert first["plan"]["kind"].startswith(f"{family}.")
    again = replanned(request, first["plan"])
    started = planner.solve({**request, "start_plan": first["plan"]})
    without = planner.solve(request)
    assert "plan" not in without
    assert "warnings" not in started
    costs = {one["objective_ns"] for one in (first, again, started, without)}
    assert costs == {told[-1].objective_ns}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=150)
@given(data=st.data(), draw=st.randoms(use_true_random=False), changes=st.integers(0, 2))
def test_any_plan_of_the_family_is_taken_or_told_of(
    name: str, data: st.DataObject, draw: Random, changes: int
) -> None:
    """Also of another problem, and what such a plan has become in a file."""
    family, method = FAMILIES[name], data.draw(st.sampled_from(sorted(FAMILIES[name].methods)))
    problem, other = data.draw(drawn_problems(name, 2)), data.draw(drawn_problems(name, 2))
    try:
        made = family.solve(data.draw(st.sampled_from([problem, other])), method=method).plan
        document = json.loads(encode_plan(made))
        for _ in range(changes):
            mutated(document["plan"], draw)
        plan = decode_plan(json.dumps(document))
    except (InvalidInputError, NotApplicableError):
        return  # what is no plan of any problem has its own tests
    usual, started, again = (
        family.solve(problem, **asked)
        for asked in ({}, {"start": plan}, {"start": plan, "method": REPLAN})
    )
    assert (started.status == "infeasible") == (usual.status == "infeasible")
    if again.infeasibility is None:
        assert not started.warnings
        assert present(started.objective_ns) <= present(again.objective_ns)
        with suppress(InvalidPlanError):
            assert present(again.objective_ns) <= family.price(problem, plan)
        return
    reason = again.infeasibility.reason
    assert again.infeasibility.binding
    if again.infeasibility.binding == ("start_plan",):
        assert reason.startswith("the start plan does not fit this problem (")
        assert started == replace(
            usual, warnings=(f"start_plan is ignored: {reason}",), runtime_s=started.runtime_s
        )


@pytest.mark.parametrize(
    ("family", "field"),
    [("yan", "layers"), ("caramel", "parameters"), ("drizzle", "stages"), ("bml", "n")],
)
def test_what_does_not_fit_is_said_in_an_answer(family: str, field: str) -> None:
    request = REQUESTS[family][0]
    plan = kept({**request, field: 3 if field == "n" else request[field][:-1]})
    again, answer = replanned(request, plan), planner.solve({**request, "start_plan": plan})
    assert (again["status"], again["objective_ns"]) == ("infeasible", None)
    assert again["binding"] == ["start_plan"]
    assert answer["warnings"] == [f"start_plan is ignored: {again['reason']}"]
    assert told(answer, "warnings") == told(planner.solve(request))


def test_a_ranking_that_repeats_itself_is_taken_once() -> None:
    """Ranked twice, a configuration made an answer that was refused when it was read again."""
    plan = kept(REQUESTS["yan"][0])
    plan["plan"]["ranking"][1:] = deepcopy(plan["plan"]["ranking"][:1])
    again = replanned(REQUESTS["yan"][0], plan)
    assert len(again["top"]) == 1
    decode_answer(msgspec.json.encode(again))


def test_numbers_that_changed_are_adapted() -> None:
    """What is left of a plan that needs more memory than there is now is improved until it fits."""
    plan = kept({**FSDP, "memory_bytes": 10**6})
    again = replanned(FSDP, plan)
    assert again["status"] == "feasible"
    assert again["peak_bytes"] <= FSDP["memory_bytes"]
    assert "warnings" not in planner.solve({**FSDP, "start_plan": plan})


@pytest.mark.parametrize("family", ["ibatch", "caramel", "iteration", "overlap"])
def test_a_plan_chosen_for_scenarios_is_kept_and_most_searches_for_some_take_none(
    family: str,
) -> None:
    request = {**REQUESTS[family][0], "scenarios": [{"startup": 2}], "with_plan": True}
    answer = planner.solve(request)
    nominal = replanned(REQUESTS[family][0], answer["plan"])
    assert nominal["objective_ns"] <= answer["objective_ns"]
    again = planner.solve({**request, "start_plan": answer["plan"]})
    if family != "iteration":
        warning = "start_plan is ignored: the search for scenarios begins without one"
        assert again.pop("warnings") == [warning]
        assert told(again) == told(answer)


TABLE = {
    "problem": "ibatch",
    "layer_bytes": [100, 200, 300, 1],
    "compute_ns": [500, 600, 700, 10],
    "cost_table": [[0, 100], [600, 1000]],
}
FLOATS = {**ITERATION, "element_bytes": 4}
SHIPPED = large.shipped("overlap/two-layers.json")
HELD = [{"size_bytes": 8, "readers": [5]}, *OVERLAP["tensors"]]

UNITS = {"drizzle overhead": 1 / 1000, "overlap memory, shipped": 2**20}
"""What is counted of a limit, if not ones."""

LIMITS: dict[str, tuple[Request, str, int]] = {
    "ibatch cap": (IBATCH, "max_batch_bytes", 300),
    "ibatch cap, push": ({**IBATCH, "direction": "push"}, "max_batch_bytes", 300),
    "ibatch cap, table": (TABLE, "max_batch_bytes", 300),
    "yan memory": (BASES["small"], "memory_bytes", 1000),
    "drizzle overhead": ({**DRIZZLE, "constant_task_ns": 10}, "max_overhead", 999),
    "drizzle group": (DRIZZLE, "max_group_ns", 10**9),
    "fsdp memory": (FSDP, "memory_bytes", 10**4),
    "iteration memory": ({**FLOATS, "optimiser_ratio": 2}, "cluster.memory_bytes", 10**5),
    "iteration transfers": (FLOATS, "max_transfer_bytes", 10**4),
    "overlap memory": ({**OVERLAP, "tensors": HELD}, "memory_limit_bytes", 100),
    "overlap memory, shipped": (SHIPPED, "memory_limit_bytes", 300),
}
"""A request, where its limit stands, which is what binds, and a limit that binds nothing."""


def answer(name: str, limit: int, **more: Any) -> Request:
    """Return the answer: without a plan it names the limit, unless a method does not apply."""
    request, place, _ = LIMITS[name]
    asked = patched(request, {place: limit * UNITS.get(name, 1)})
    found = planner.solve({**asked, **more})
    if more and "error" in found:
        assert found["error"]["path"] in ("method", "modes", "algorithms"), found
        return found
    schemas.validate(found, asked["problem"], "answer")
    if found["status"] == "infeasible":
        assert place.rpartition(".")[2] in found["binding"], (more, limit, found)
        assert found["reason"]
    return found


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name.startswith(("it", "ov", "yan")) else [])
        for name in LIMITS
    ],
)
def test_below_the_least_it_is_infeasible_and_every_method_says_so(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "MAX_TRANSFERS", 40)  # thousands take seconds to plan
    request, _, ample = LIMITS[name]
    low, least = 0, ample  # infeasible, feasible
    while least - low > 1:
        middle = (low + least) // 2
        if answer(name, middle)["status"] == "infeasible":
            low = middle
        else:
            least = middle
    draw = Random(name)
    for limit in {1, low, draw.randint(1, low), draw.randint(1, low)} - {0}:
        if limit < least:
            assert answer(name, limit)["status"] == "infeasible"
    costs = [answer(name, limit)["objective_ns"] for limit in (least, least + 1, ample)]
    assert None not in costs
    if name != "drizzle overhead":  # whose group is the smaller, the more overhead it may have
        assert costs == sorted(costs, reverse=True)
    for method in without_auto(FAMILIES[request["problem"]].methods):
        for limit in {1, low or 1, least, draw.randint(1, ample)}:
            answer(name, limit, method=method, time_limit_s=2)
