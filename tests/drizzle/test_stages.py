"""Stages of an iteration: order, triggers, and what is no graph of stages."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.families.drizzle import Plan, Problem, Stage, Triggers, check, solve
from planner.model.errors import InvalidPlanError
from planner.model.validation import MAX_VALUE
from tests.drizzle.drizzle_strategies import stages

BIGDL = (Stage("gradients", 256), Stage("aggregation", 64, ("gradients",)))


def problem(given: Any, tasks: int | None = None) -> Problem:
    return Problem(compute_ns=1000, tasks=tasks, task_ns=1, max_overhead=0.5, stages=given)


def plan_of(given: tuple[Stage, ...]) -> Plan:
    plan = solve(problem(given)).plan
    assert plan is not None
    return plan


def test_bigdl_waits_for_all_slices_of_the_weights() -> None:
    assert plan_of(BIGDL).stages == (
        Triggers("gradients", 256, (), 0, ("aggregation",), 64),
        Triggers("aggregation", 64, ("gradients",), 256, (), 0),
    )
    assert problem(BIGDL).tasks == 320


def test_one_stage_waits_for_itself() -> None:
    assert plan_of((Stage("all", 5),)).stages == (Triggers("all", 5, (), 0, ("all",), 5),)


@settings(max_examples=200)
@given(stages(), st.integers(1, 3))
def test_a_run_by_triggers_runs_every_task_once_after_what_it_reads(
    given: tuple[Stage, ...], size: int
) -> None:
    """Queue a group, count the triggers of each task, start what has all of them."""
    rows = plan_of(given).stages
    missing: dict[tuple[int, str, int], int] = {}
    for iteration in range(size):
        for row in rows:
            first = iteration == 0
            needed = row.triggers + (0 if first else row.triggers_previous)
            for task in range(row.tasks):
                missing[iteration, row.name, task] = needed
    done: set[tuple[int, str]] = set()
    known = {stage.name: stage for stage in given}
    read = {name for stage in given for name in stage.after}
    while ready := [key for key, count in missing.items() if count == 0]:
        for iteration, name, task in ready:
            stage = known[name]
            before = {(iteration, one) for one in stage.after}
            if not stage.after and iteration:
                before = {(iteration - 1, one) for one in known.keys() - read}
            assert before <= done
            del missing[iteration, name, task]
            for row in rows:
                for place, names in ((iteration, row.after), (iteration + 1, row.after_previous)):
                    if name in names and place < size:
                        for other in range(row.tasks):
                            missing[place, row.name, other] -= 1
        for iteration, name, _ in ready:
            if not any((iteration, name, task) in missing for task in range(known[name].tasks)):
                done.add((iteration, name))
    assert not missing


@settings(max_examples=200)
@given(stages(), st.data())
def test_the_checker_kills_every_change(given: tuple[Stage, ...], data: st.DataObject) -> None:
    plan = plan_of(given)
    check(problem(given), plan)
    rows = list(plan.stages)
    place = data.draw(st.integers(0, len(rows) - 1))
    row = rows[place]
    changes = {
        "dropped": rows[:place] + rows[place + 1 :],
        "doubled": [*rows, row],
        "renamed": [*rows[:place], replace(row, name="none"), *rows[place + 1 :]],
        "reversed": rows[::-1],
    }
    for field in ("tasks", "triggers", "triggers_previous"):
        changed = replace(row, **{field: getattr(row, field) + 1})
        changes[field] = [*rows[:place], changed, *rows[place + 1 :]]
    for field in ("after", "after_previous"):
        names = getattr(row, field)
        for change, left in (("more", (*names, row.name)), ("less", names[1:])):
            if left != names:
                changed = replace(row, **{field: left})  # type: ignore[arg-type]
                changes[f"{field} {change}"] = [*rows[:place], changed, *rows[place + 1 :]]
    if not any(stage.after for stage in given):
        del changes["reversed"]
    for changed_rows in changes.values():
        with pytest.raises(InvalidPlanError):
            check(problem(given), replace(plan, stages=tuple(changed_rows)))


def test_a_plan_without_the_stages_is_none() -> None:
    with pytest.raises(InvalidPlanError, match=r"without \['aggregation', 'gradients'\]"):
        check(problem(BIGDL), Plan(1))


@pytest.mark.parametrize(
    ("given", "path", "message"),
    [
        ("stages", "stages", "expected an array, got 'stages'"),
        (({"name": "a"},), "stages[0]", "expected a Stage, got an object"),
        ((Stage(3, 1),), "stages[0].name", "expected a string, got 3"),  # type: ignore[arg-type]
        ((Stage("a", 0),), "stages[0].tasks", "expected an integer >= 1, got 0"),
        (
            (Stage("a", 1), Stage("b", 1), Stage("a", 2)),
            "stages[2].name",
            "'a' given twice, first in stages[0]",
        ),
        (
            (Stage("gradient", 1), Stage("b", 1, ("gradeint",))),
            "stages[1].after[0]",
            "no stage is called 'gradeint'; did you mean 'gradient'?",
        ),
        (
            (Stage("a", 1), Stage("b", 1, ("xyz",))),
            "stages[1].after[0]",
            "no stage is called 'xyz'",
        ),
        ((Stage("a", 1), Stage("b", 1, ("a", "a"))), "stages[1].after[1]", "'a' given twice"),
        (
            (Stage("a", 1, ["b"]),),  # type: ignore[arg-type]
            "stages[0].after",
            "expected names, got an array",
        ),
        (
            (Stage("a", 1), Stage("b", 1, (7,))),  # type: ignore[arg-type]
            "stages[1].after[0]",
            "expected a string, got 7",
        ),
        ((Stage("a", 1, ("a",)),), "stages[0].after", "the stages form a cycle: a -> a"),
        (
            (
                Stage("a", 1),
                Stage("b", 1, ("d", "a")),
                Stage("c", 1, ("b",)),
                Stage("d", 1, ("c",)),
            ),
            "stages[1].after",
            "the stages form a cycle: b -> c -> d -> b",
        ),
        (
            (Stage("a", MAX_VALUE), Stage("b", 1)),
            "stages",
            f"expected at most {MAX_VALUE} tasks together, got {MAX_VALUE + 1}",
        ),
    ],
)
def test_what_are_no_stages(given: Any, path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        problem(given)
    assert (caught.value.path, caught.value.message) == (path, message)


def test_names_of_one_stage_are_not_compared_with_each_other() -> None:
    """So that the time grows with their number, not its square."""
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    names = tuple(Name(f"s{place}") for place in range(500))
    problem((*(Stage(name, 1) for name in names), Stage("last", 1, names)))
    assert compared < 20 * len(names)
