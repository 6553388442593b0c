"""The smallest group against brute force, its prices and limits; triggers; and what is refused.

Numbers below 0 are refused in `tests/test_numbers.py`.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from planner import Status
from planner.families import drizzle
from planner.families.drizzle import Measurement, Plan, Problem, Stage, check, evaluate, solve
from planner.families.drizzle.evaluation import curve, group_sizes, largest_group
from planner.families.drizzle.loops import problem_of
from planner.model.errors import BrokenConstraintError, InvalidInputError, InvalidPlanError
from planner.model.validation import MAX_TOTAL, MAX_VALUE
from planner.testing import problems
from tests.formats.refused import refused
from tests.present import present

TRIED = 150
"""Brute force looks no farther if the time of a group is not limited."""


def example_of(**change: Any) -> Problem:
    fields: dict[str, Any] = {
        "compute_ns": 900_000_000,
        "tasks": 256,
        "task_ns": 390_000,
        "max_overhead": Fraction(1, 20),
    }
    return Problem(**{**fields, **change})


def literal_overhead(problem: Problem, size: int) -> Fraction:
    """Return o(g) as it is printed, all of a group's scheduling spread over its iterations."""
    whole = Fraction(problem.group_ns)
    for _ in range(present(problem.tasks)):
        whole += Fraction(problem.task_ns) + size * Fraction(problem.constant_task_ns)
    return whole / size


def keeps(problem: Problem, size: int) -> bool:
    """Return whether a group size keeps both limits, without a division by what may be 0."""
    spent = literal_overhead(problem, size)
    iteration = problem.compute_ns + spent
    within = problem.max_group_ns is None or size * iteration <= problem.max_group_ns
    return spent <= Fraction(problem.max_overhead) * iteration and within


def brute_force(problem: Problem, most: int) -> int | None:
    """Return the size up to `most` that keeps the limits and whose group takes least time."""
    return min(
        (size for size in range(1, most + 1) if keeps(problem, size)),
        key=lambda size: size * (problem.compute_ns + literal_overhead(problem, size)),
        default=None,
    )


@settings(max_examples=800)
@given(problems("drizzle"))
@example(example_of(compute_ns=10, tasks=1, task_ns=5, max_overhead=0.25, max_group_ns=24))
@example(example_of(compute_ns=10, tasks=1, task_ns=5, max_overhead=0.25, max_group_ns=25))
def test_exact_equals_brute_force_and_what_binds_is_what_must_give(problem: Problem) -> None:
    """Within a limit on the time of a group brute force sees every size there is.

    Without the limits that bind there is a plan; with any other one left out there is none.
    """
    limit = problem.max_group_ns if problem.compute_ns else None
    best = brute_force(problem, limit or TRIED)
    result = solve(problem)
    if best is None:
        assert result.plan is None or (limit is None and result.plan.group_size > TRIED)
    else:
        assert present(result.plan).group_size == best
        assert result.status == Status.OPTIMAL
        time = best * (problem.compute_ns + literal_overhead(problem, best))
        assert result.objective_ns == result.lower_bound_ns == ceil(time)
    if result.plan is not None:
        return
    binding = present(result.infeasibility).binding
    assert set(binding) <= {"max_overhead", "max_group_ns"}
    if "max_overhead" not in binding:
        nearly_all = replace(problem, max_overhead=Fraction(10**9 - 1, 10**9))
        assert solve(nearly_all).plan is None
    if "max_group_ns" not in binding or binding == ("max_group_ns",):
        unlimited = solve(replace(problem, max_group_ns=None)).plan
        assert (unlimited is None) == ("max_group_ns" not in binding)


@settings(max_examples=600)
@given(problems("drizzle"), st.integers(1, 60))
@example(example_of(compute_ns=10, tasks=1, task_ns=0, max_group_ns=15), 2)
def test_prices_are_the_printed_formulas_and_the_checker_accepts_what_keeps_the_limits(
    problem: Problem, size: int
) -> None:
    priced = evaluate(problem, Plan(size))
    spent = literal_overhead(problem, size)
    iteration = problem.compute_ns + spent
    assert priced.overhead_time == spent
    assert priced.iteration == iteration
    assert priced.iteration_ns - 1 < iteration <= priced.iteration_ns
    assert priced.group == size * iteration
    assert priced.overhead * iteration == spent
    assert 0 <= priced.overhead <= 1
    of_compute = spent / problem.compute_ns if problem.compute_ns else None
    assert priced.overhead_of_compute == of_compute
    assert priced.speedup * iteration == problem.compute_ns + literal_overhead(problem, 1) or (
        iteration == 0 and priced.speedup == 1
    )
    if keeps(problem, size):
        check(problem, Plan(size))
        return
    with pytest.raises(BrokenConstraintError) as caught:
        check(problem, Plan(size))
    assert caught.value.path == "group_size"
    assert caught.value.binding in ("max_overhead", "max_group_ns")


NO_SIZES: Any = (0, True, 2.0)


@pytest.mark.parametrize("plan", [*map(Plan, NO_SIZES), None, "exact"])
def test_the_checker_refuses_what_is_no_plan(plan: Any) -> None:
    message = "an integer >= 1" if isinstance(plan, Plan) else "a Plan"
    with pytest.raises(InvalidPlanError, match=f"expected {message}"):
        check(example_of(), plan)


def test_an_overhead_that_no_group_takes_away() -> None:
    exactly = example_of(compute_ns=900, tasks=1, task_ns=7, constant_task_ns=100, max_overhead=0.1)
    assert solve(exactly).plan is None, "only an infinite group would do"
    assert solve(replace(exactly, task_ns=0)).plan == Plan(1)
    found = present(solve(example_of(compute_ns=0)).infeasibility)
    assert found.binding == ("max_overhead",)
    assert "nothing is computed" in found.reason
    nothing = example_of(compute_ns=0, task_ns=0)
    assert solve(nothing).plan == Plan(1)
    assert evaluate(nothing, Plan(1)).overhead == 0


def test_times_at_the_edge_of_the_range() -> None:
    late = example_of(compute_ns=10**12, tasks=1, task_ns=0, max_group_ns=10**12 - 1)
    with pytest.raises(BrokenConstraintError, match=r"takes 1000000000000 ns, more than .*999$"):
        check(late, Plan(1))
    problem = example_of(compute_ns=MAX_VALUE, tasks=1, task_ns=1, max_overhead=Fraction(1, 2))
    assert solve(problem).objective_ns == MAX_VALUE + 1
    tiny = example_of(compute_ns=10**15, task_ns=10**12, max_overhead=Fraction(1, 2**40))
    with refused("max_overhead", "must fit in 63 bits"):
        solve(tiny)
    found = present(solve(replace(tiny, max_group_ns=MAX_VALUE)).infeasibility)
    assert found.binding == ("max_overhead", "max_group_ns")
    assert [size for size, _ in curve(example_of(compute_ns=MAX_VALUE, tasks=1), 1)] == [1]


@settings(max_examples=200)
@given(problems("drizzle"))
def test_the_curve_goes_through_the_plan_and_beyond_the_limits(problem: Problem) -> None:
    plan = solve(problem).plan
    assume(plan is not None)
    planned = present(plan).group_size
    points = curve(problem, planned)
    sizes = [size for size, _ in points]
    assert sizes == sorted(set(sizes))
    assert sizes[0] == 1
    assert sizes[-1] >= 4 * planned
    assert planned in sizes
    most = largest_group(problem)
    if most is not None and most <= 100 * planned:
        assert most in sizes
        assert sizes[-1] > most
    for size, priced in points:
        assert priced == evaluate(problem, Plan(size))
        assert priced.group_ns <= MAX_TOTAL


# Stages of an iteration: their order, and what triggers them.


@st.composite
def stages(draw: st.DrawFn, *, most: int = 7) -> tuple[Stage, ...]:
    """Draw a directed acyclic graph of stages in any order."""
    made: list[Stage] = []
    for place in range(draw(st.integers(1, most))):
        names = [stage.name for stage in made]
        before = draw(st.sets(st.sampled_from(names))) if place else set()
        after = draw(st.permutations(sorted(before)))
        made.append(Stage(f"s{place}", draw(st.integers(1, 9)), tuple(after)))
    return tuple(draw(st.permutations(made)))


def problem(given: Any) -> Problem:
    return Problem(compute_ns=1000, task_ns=1, max_overhead=0.5, stages=given)


def plan_of(given: tuple[Stage, ...]) -> Plan:
    return present(solve(problem(given)).plan)


def test_bigdl_waits_for_all_slices_of_the_weights_and_one_stage_for_itself() -> None:
    given = Stage("gradients", 256), Stage("aggregation", 64, ("gradients",))
    assert plan_of(given).stages == (
        drizzle.Triggers("gradients", 256, (), 0, ("aggregation",), 64),
        drizzle.Triggers("aggregation", 64, ("gradients",), 256, (), 0),
    )
    assert problem(given).tasks == 320
    assert plan_of((Stage("all", 5),)).stages == (drizzle.Triggers("all", 5, (), 0, ("all",), 5),)
    with pytest.raises(InvalidPlanError, match=r"without \['aggregation', 'gradients'\]"):
        check(problem(given), Plan(1))


@settings(max_examples=200)
@given(stages(), st.integers(1, 3))
def test_a_run_by_triggers_runs_every_task_once_after_what_it_reads(
    given: tuple[Stage, ...], size: int
) -> None:
    """Queue a group, count the triggers of each task, start what has all of them."""
    rows = plan_of(given).stages
    missing = {
        (iteration, row.name, task): row.triggers + (row.triggers_previous if iteration else 0)
        for iteration in range(size)
        for row in rows
        for task in range(row.tasks)
    }
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
    counts = ("tasks", "triggers", "triggers_previous")
    fields: list[dict[str, Any]] = [{field: getattr(row, field) + 1} for field in counts]
    fields.append({"name": "none"})
    for field in ("after", "after_previous"):
        names = getattr(row, field)
        fields += [{field: left} for left in ((*names, row.name), names[1:]) if left != names]
    before, behind = rows[:place], rows[place + 1 :]
    changes = [[*before, replace(row, **changed), *behind] for changed in fields]
    changes += [[*before, *behind], [*rows, row]]
    if any(stage.after for stage in given):
        changes.append(rows[::-1])
    for changed_rows in changes:
        with pytest.raises(InvalidPlanError):
            check(problem(given), replace(plan, stages=tuple(changed_rows)))


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


# What is no problem, no graph of stages, no band, and no measurements.

RANGE = f"expected a number from 0 to {MAX_VALUE}, got"
LEAST = "expected an integer >= 1, got"
SHARE = "expected a number > 0 and < 1, got"
LONG = f"the time of a group of one must fit in 63 bits, got {MAX_VALUE * 390_000 + 900_000_000}"
TOGETHER = "expected as many as the stages have (1), got 2"
HALF = drizzle.Band(Fraction(0), Fraction(1, 2))
BROKEN: list[tuple[dict[str, Any], str, str]] = [
    ({"tasks": 0}, "tasks", f"{LEAST} 0"),
    ({"tasks": None}, "tasks", "missing (or stages)"),
    ({"tasks": 2, "stages": [Stage("a", 1)]}, "tasks", TOGETHER),
    ({"constant_task_ns": 2**62 + 1}, "constant_task_ns", f"{RANGE} {2**62 + 1}"),
    ({"max_overhead": 0}, "max_overhead", f"{SHARE} 0"),
    ({"max_overhead": 1}, "max_overhead", f"{SHARE} 1"),
    ({"max_group_ns": 0}, "max_group_ns", f"{LEAST} 0"),
    ({"tasks": MAX_VALUE}, "task_ns", LONG),
]
ONE: tuple[Any, ...] = (Stage("a", 1),)
CYCLE = (*ONE, Stage("b", 1, ("d", "a")), Stage("c", 1, ("b",)), Stage("d", 1, ("c",)))
TYPO = Stage("gradient", 1), Stage("b", 1, ("gradeint",))
NAMED: Any = 3, ["b"], (7,)
MANY = f"expected at most {MAX_VALUE} tasks together, got {MAX_VALUE + 1}"
STAGES: list[tuple[Any, str, str]] = [
    ("stages", "stages", "expected an array, got 'stages'"),
    (({"name": "a"},), "stages[0]", "expected a Stage, got an object"),
    ((Stage(NAMED[0], 1),), "stages[0].name", "expected a string, got 3"),
    ((Stage("a", 0),), "stages[0].tasks", f"{LEAST} 0"),
    ((*ONE, Stage("b", 1), *ONE), "stages[2].name", "'a' given twice, first in stages[0]"),
    (TYPO, "stages[1].after[0]", "no stage is called 'gradeint'; did you mean 'gradient'?"),
    ((*ONE, Stage("b", 1, ("a", "a"))), "stages[1].after[1]", "'a' given twice"),
    ((Stage("a", 1, NAMED[1]),), "stages[0].after", "expected names, got an array"),
    ((*ONE, Stage("b", 1, NAMED[2])), "stages[1].after[0]", "expected a string, got 7"),
    (CYCLE, "stages[1].after", "the stages form a cycle: b -> c -> d -> b"),
    ((Stage("a", MAX_VALUE), Stage("b", 1)), "stages", MANY),
]
BANDS: list[tuple[Any, str, str]] = [
    ((1, 1), "low", "expected a number >= 0 and < 1, got 1"),
    ((Fraction(1, 2), 0), "high", "expected a number >= low and < 1, got 0"),
    ((0, 1), "high", "expected a number >= low and < 1, got 1"),
    ((0, 0, 1), "factor", "expected a number > 1, got 1"),
    ((0, 0, 2, 0), "step", f"{LEAST} 0"),
    ((0, 0, 2, 1, 0), "max_group_size", f"{LEAST} 0"),
]
MEASURED: list[tuple[Any, str, str]] = [
    ({1: 2}, "measurements", "expected an array, got an object"),
    ([], "measurements", "expected at least one element, got an empty array"),
    ([3], "measurements[0]", "expected a Measurement, got 3"),
    ([Measurement(0, 1, 1)], "measurements[0].tasks", f"{LEAST} 0"),
    (
        [Measurement(1, 1, 1), Measurement(1, 0, 1)],
        "measurements[1].group_size",
        f"{LEAST} 0",
    ),
    ([Measurement(1, 1, 0)], "measurements[0].overhead_ns", f"{LEAST} 0"),
]
staged = partial(Problem, compute_ns=1000, task_ns=1, max_overhead=0.5)
logged = partial(problem_of, (), max_overhead=Fraction(1, 20), max_group_ns=None)
share_of = partial(drizzle.adjusted, HALF, drizzle.State())
REFUSED: list[tuple[Callable[[], object], str, str]] = [
    *((partial(example_of, **change), path, message) for change, path, message in BROKEN),
    *((partial(staged, stages=stages), path, message) for stages, path, message in STAGES),
    *((partial(drizzle.Band, *fields), path, message) for fields, path, message in BANDS),
    *((partial(drizzle.calibrate, rows), path, message) for rows, path, message in MEASURED),
    (partial(drizzle.State, 0), "group_size", f"{LEAST} 0"),
    (partial(share_of, Fraction(-1)), "overhead", f"{RANGE} -1"),
    (partial(share_of, Fraction(3, 2)), "overhead", "expected a number from 0 to 1, got 3/2"),
    (partial(group_sizes, example_of(), HALF, 0), "groups", f"{LEAST} 0"),
    (logged, "", "no jobs that repeat at least 3 times one after the other: no iterations"),
]


@pytest.mark.parametrize(("ask", "path", "message"), REFUSED)
def test_what_cannot_be_is_refused(ask: Callable[[], object], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        ask()
    assert (caught.value.path, caught.value.message) == (path, message)
