"""What is said of a solution of CP-SAT: whether there is one, and whether it is proven best."""

from typing import Any

import pytest
from ortools.sat.python import cp_model

from planner.solving.cpsat import solved
from planner.solving.deadline import NEVER, Deadline


def knapsack(least: int = 0) -> tuple[Any, list[Any]]:
    """Return a model with many solutions, of which one or few are best, and its choices."""
    model = cp_model.CpModel()
    weights = [31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97]
    chosen = [model.new_bool_var(f"x{weight}") for weight in weights]
    total = sum(weight * one for weight, one in zip(weights, chosen, strict=True))
    model.add(total <= 500)
    model.add(total >= least)
    model.maximize(sum((2 * weight + 7) * one for weight, one in zip(weights, chosen, strict=True)))
    return model, chosen


def test_the_best_solution_is_proven() -> None:
    model, chosen = knapsack()
    solver, found, proven = solved(model, NEVER)
    assert (found, proven) == (True, True)
    again, *_ = solved(model, NEVER)
    assert [solver.value(one) for one in chosen] == [again.value(one) for one in chosen]


def test_a_first_solution_is_none_that_is_proven() -> None:
    once = {"stop_after_first_solution": True, "cp_model_presolve": False, "linearization_level": 0}
    _, found, proven = solved(knapsack()[0], NEVER, **once)
    assert (found, proven) == (True, False)


@pytest.mark.parametrize(("deadline", "proven"), [(NEVER, True), (Deadline(1e-9), False)])
def test_without_a_solution_it_is_proven_that_there_is_none_if_there_was_time(
    deadline: Deadline, *, proven: bool
) -> None:
    _, found, known = solved(knapsack(least=501)[0] if proven else knapsack()[0], deadline)
    assert (found, known) == (False, proven)
