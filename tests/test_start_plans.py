"""Start plans of other problems: ignored with a warning, or infeasible with the reason."""

from copy import deepcopy
from random import Random
from typing import Any

import msgspec
import pytest

import planner
from planner.families import overlap
from planner.jsonio import PROBLEMS, bml, decode_answer, yan
from planner.jsonio.results import decode_plan, encode_plan
from planner.jsonio.service import decode_request, solve_or_raise
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.solving.deadline import TimeUpError
from planner.solving.family import OUT_OF_TIME
from planner.solving.methods import REPLAN, Outcome
from tests import schemas
from tests.fuzzing.plans import start_plan
from tests.jsonio.test_plan_files import METHODS as REQUESTS
from tests.test_methods import FAMILIES
from tests.thorough import THOROUGH
from tests.words import Words

Request = dict[str, Any]


def problem_of(request: Any) -> Any:
    match request.problem:
        case "bml":
            return bml.problem_of(request)
        case "yan":
            return yan.problem_of(request)
    return request.to_problem()


MANY = 60 if THOROUGH else 24
"""How often an old plan is tried for each family."""

LEFT_OUT = ("scenarios", "outlook", "percentile", "regret", "method", "with_plan", "epoch_samples")
"""What a small request may ask beside a plan."""


@pytest.mark.parametrize(
    "many", [pytest.param(MANY, marks=pytest.mark.slow), 8], ids=["many", "few"]
)
@pytest.mark.parametrize("family", PROBLEMS)
def test_any_plan_of_the_family_is_taken_or_told_of(family: str, many: int) -> None:
    solver, replanned, warned = FAMILIES[family], 0, 0
    draw = Random(f"{family} {many}")
    for _ in range(many):
        request, plan = start_plan(family, draw)
        kept = {name: value for name, value in request.items() if name not in LEFT_OUT}
        request = kept | {"time_limit_s": 0.05}
        try:
            typed = decode_plan(msgspec.json.encode(plan))
            problem = problem_of(decode_request(msgspec.json.encode(request)))
            usual = solve_or_raise(request)
        except InvalidInputError:
            continue  # what is no plan of any problem, or no request, has its own tests
        asked = request | {"start_plan": plan}
        try:
            answer, again = solve_or_raise(asked), solve_or_raise(asked | {"method": REPLAN})
        except NotApplicableError:
            continue  # an option that replan does not have
        except InvalidInputError as error:
            if error.path != "start_plan.kind" and (family, error.path) != ("bml", "schedule"):
                raise
            continue  # another family's, or of 2^40 rounds, which are more than are listed
        for one in (answer, again):
            schemas.validate(one, family, "answer")
        assert (answer["status"] == "infeasible") == (usual["status"] == "infeasible")
        said = [text for text in answer.get("warnings", ()) if "start_plan is ignored" in text]
        if again["status"] == "infeasible":
            assert again["binding"]
            if again["binding"] == ["start_plan"]:
                warned += 1
                assert "does not fit this problem" in again["reason"]
                assert said or "time_limit" in (answer["status"], again["status"])
        else:
            replanned += 1
            assert not said or "time limit" in said[0]
            found = None not in (answer["objective_ns"], again["objective_ns"])
            assert found or "time_limit" in (answer["status"], again["status"])
            if found and not said:
                assert answer["objective_ns"] <= again["objective_ns"]
        result = solver.solve(problem, start=typed, method=REPLAN)
        assert result.objective_ns == again["objective_ns"] or again["status"] == "time_limit"
        if result.plan is not None:
            assert encode_plan(result.plan)
    if many > 20:
        assert replanned
        assert warned or family == "bigdl"  # whose plans are adapted to other numbers


def cut(request: Request, *names: str) -> Request:
    """The same with one layer, or whatever else these fields list, fewer."""
    return {**request, **{name: request[name][:-1] for name in names if name in request}}


OTHERS: dict[str, Any] = {
    "ibatch": lambda it: cut(it, "layer_bytes", "transfer_ns", "compute_ns", "layer_parameters"),
    "caramel": lambda it: cut(it, "parameters"),
    "yan": lambda it: cut(it, "layers"),
    "bml": lambda it: {**it, "n": 3},
    "bigdl": lambda it: {**it, "nodes": 2, "method": "tree_aggregate"},
    "drizzle": lambda it: cut(it, "stages"),
    "fsdp": lambda it: cut(
        it,
        *("forward_ns", "backward_ns", "parameter_bytes", "gradient_bytes"),
        *("activation_bytes", "checkpoint_bytes"),
    ),
    "iteration": lambda it: {**it, "profile": cut(it["profile"], "layers")},
    "overlap": lambda it: cut(it, "nodes") | {"tensors": []},
}
"""Another problem of each family, whose plan does not fit the first."""


@pytest.mark.parametrize("family", PROBLEMS)
def test_what_does_not_fit_is_said_in_all_families_alike(family: str) -> None:
    request = REQUESTS[family][0]
    plan = planner.solve({**OTHERS[family](request), "with_plan": True})["plan"]
    usual, answer, again = (
        planner.solve({**request, **more})
        for more in ({}, {"start_plan": plan}, {"start_plan": plan, "method": REPLAN})
    )
    assert again["status"] == "infeasible"
    assert again["binding"] == ["start_plan"]
    assert again["objective_ns"] is None
    assert again["reason"].startswith("the start plan does not fit this problem (")
    assert answer.pop("warnings") == [f"start_plan is ignored: {again['reason']}"]
    for one in (usual, answer):
        del one["runtime_s"]
    assert answer == usual


@pytest.mark.parametrize("family", PROBLEMS)
def test_a_plan_that_fits_is_not_warned_of(family: str) -> None:
    request = REQUESTS[family][0]
    plan = planner.solve({**request, "with_plan": True})["plan"]
    assert "warnings" not in planner.solve({**request, "start_plan": plan})


def test_no_buffer_is_no_plan() -> None:
    request = REQUESTS["fsdp"][0]
    plan = planner.solve({**request, "with_plan": True})["plan"]
    plan["plan"]["buffers"] = 0
    again = planner.solve({**request, "start_plan": plan, "method": REPLAN})
    assert again["reason"].endswith("(buffers: expected an integer >= 1, got 0)")


def test_a_ranking_that_repeats_itself_is_taken_once() -> None:
    """Ranked twice, a configuration made an answer that was refused when it was read again."""
    request = REQUESTS["yan"][0]
    plan = planner.solve({**request, "with_plan": True})["plan"]
    plan["plan"]["ranking"][1:] = deepcopy(plan["plan"]["ranking"][:1])
    again = planner.solve({**request, "start_plan": plan, "method": REPLAN})
    assert len(again["top"]) == 1
    decode_answer(msgspec.json.encode(again))


def test_numbers_that_changed_are_adapted() -> None:
    """What is left of a plan that needs more memory than there is now is improved until it fits."""
    request = REQUESTS["fsdp"][0]
    plan = planner.solve({**request, "memory_bytes": 10**6, "with_plan": True})["plan"]
    again = planner.solve({**request, "start_plan": plan, "method": REPLAN})
    assert again["status"] == "feasible"
    assert again["peak_bytes"] <= request["memory_bytes"]
    assert "warnings" not in planner.solve({**request, "start_plan": plan})


@pytest.mark.parametrize("family", ["ibatch", "caramel"])
def test_a_search_for_scenarios_takes_none(family: str) -> None:
    request = REQUESTS[family][0]
    plan = planner.solve({**request, "with_plan": True})["plan"]
    (said,) = planner.solve({**request, "scenarios": [{"startup": 2}], "start_plan": plan})[
        "warnings"
    ]
    assert said == "start_plan is ignored: the search for scenarios begins without one"


def test_a_plan_of_a_larger_problem_is_warned_of() -> None:
    small, large = (overlap.Problem(nodes=[overlap.Node("a")] * n) for n in (1, 2))
    result = overlap.solve(small, start=overlap.solve(large).plan)
    assert len(result.warnings) == 1


def test_what_is_not_checked_in_time_is_said() -> None:
    class Late(Words):
        def check(self, *_: object) -> None:
            raise TimeUpError

    family = Late({"a plan": 5}, {"m": lambda *_: Outcome(None, infeasibility=OUT_OF_TIME)})
    result = family.solve("a problem", method="m", start="a plan")
    assert result.warnings == (
        "start_plan is ignored: the time limit passed before it was checked",
    )
