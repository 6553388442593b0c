"""What methods of all families have in common, and the results made of their answers."""

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

import planner
from planner.jsonio import PROBLEMS
from planner.model.errors import NotApplicableError
from planner.solving.deadline import NEVER
from planner.solving.methods import concrete, loaded
from tests.contract.test_every_method import FAMILIES
from tests.jsonio.test_plan_files import METHODS as REQUESTS
from tests.test_numbers import PROBLEMS as NUMBERS


def problem_of(family: str) -> Any:
    problem = NUMBERS[family]
    return replace(problem, memory_bytes=None) if family == "yan" else problem


def test_no_family_is_forgotten() -> None:
    assert FAMILIES.keys() == PROBLEMS.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_result_names_the_method_that_won_and_carries_what_its_plan_costs(family: str) -> None:
    result = FAMILIES[family].solve(problem_of(family))
    assert result.method in concrete(FAMILIES[family].methods)
    assert result.evaluation is not None


def test_a_method_whose_solver_is_missing_does_not_apply() -> None:
    with pytest.raises(NotApplicableError, match="a solver cannot be loaded: No module named"):
        loaded("planner.nowhere", "it", "a solver")(7, NEVER)
    with pytest.raises(ImportError):  # nothing but planner itself is missing
        loaded("planner.nowhere", "it")(7, NEVER)


def plans_priced(request: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return the plans that are priced until a request's result is there, and behind that."""
    family = request["problem"]
    priced: tuple[list[Any], list[Any]] = ([], [])
    there = False

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal there
        place = frame.f_globals.get("__name__"), frame.f_code.co_name
        if event == "call" and place == (f"planner.families.{family}.evaluation", "evaluate"):
            priced[there].append(frame.f_locals["plan"])
        if event == "return" and place == ("planner.solving.family", "run"):
            there |= frame.f_locals["self"] is FAMILIES[family]

    sys.setprofile(note)
    try:
        answer = planner.solve(request)
    finally:
        sys.setprofile(None)
    assert "error" not in answer, answer
    assert there
    return priced


def unnamed(family: str) -> dict[str, Any]:
    """Return a request without parameters' names: with them FSDP2's default is priced, too."""
    return {key: value for key, value in REQUESTS[family][0].items() if key != "layer_parameters"}


@pytest.mark.parametrize("family", ["ibatch", "caramel", "bml", "drizzle", "fsdp"])
def test_an_answer_says_what_its_result_knows(family: str) -> None:
    """The plan is not priced again; others are, such as other sizes of a group, or DDP's."""
    before, after = plans_priced(unnamed(family))
    assert before
    assert before[-1] not in after


def test_greedy_prices_its_two_plans_and_the_better_one_again() -> None:
    before, after = plans_priced({**unnamed("ibatch"), "method": "greedy"})
    assert (len(before), after) == (3, [])
