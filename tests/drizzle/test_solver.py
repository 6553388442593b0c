"""The smallest group against brute force, its prices and limits; triggers; and the online rule."""

from dataclasses import replace
from fractions import Fraction
from math import ceil, log
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from planner import Status
from planner.families.drizzle import (
    Plan,
    Problem,
    Stage,
    Triggers,
    check,
    evaluate,
    evaluation,
    solve,
)
from planner.families.drizzle.evaluation import Band, State, adjusted, curve, group_sizes
from planner.model.errors import BrokenConstraintError, InvalidPlanError
from planner.model.validation import MAX_TOTAL, MAX_VALUE
from planner.testing import problems
from tests.drizzle.drizzle_strategies import (
    brute_force,
    example_of,
    keeps,
    literal_overhead,
    stages,
)
from tests.formats.refused import refused
from tests.present import present

TRIED = 150
"""Brute force looks no farther if the time of a group is not limited."""


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
    most = evaluation.largest_group(problem)
    if most is not None and most <= 100 * planned:
        assert most in sizes
        assert sizes[-1] > most
    for size, priced in points:
        assert priced == evaluate(problem, Plan(size))
        assert priced.group_ns <= MAX_TOTAL


# Stages of an iteration: their order, and what triggers them.


def problem(given: Any) -> Problem:
    return Problem(compute_ns=1000, task_ns=1, max_overhead=0.5, stages=given)


def plan_of(given: tuple[Stage, ...]) -> Plan:
    return present(solve(problem(given)).plan)


def test_bigdl_waits_for_all_slices_of_the_weights_and_one_stage_for_itself() -> None:
    given = Stage("gradients", 256), Stage("aggregation", 64, ("gradients",))
    assert plan_of(given).stages == (
        Triggers("gradients", 256, (), 0, ("aggregation",), 64),
        Triggers("aggregation", 64, ("gradients",), 256, (), 0),
    )
    assert problem(given).tasks == 320
    assert plan_of((Stage("all", 5),)).stages == (Triggers("all", 5, (), 0, ("all",), 5),)
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


# The online rule: what it promises where the overhead falls as groups grow.

MOST = 80

factors = st.integers(11, 40).map(lambda tenths: Fraction(tenths, 10))


@st.composite
def bands(draw: st.DrawFn) -> Band:
    low, high = sorted(draw(st.tuples(*[st.integers(0, 49).map(lambda it: Fraction(it, 50))] * 2)))
    return Band(low, high, draw(factors), draw(st.integers(1, 5)), draw(st.integers(1, MOST)))


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Problem, Band]:
    """Draw a problem and a band with at least one size in it."""
    problem = draw(problems("drizzle"))
    problem = replace(problem, compute_ns=problem.compute_ns + 1)
    most = draw(st.integers(1, MOST))
    first = draw(st.integers(1, most))
    last = draw(st.integers(first, min(most, first + 8)))
    low, high = (share(problem, size) for size in (last, first))
    return problem, Band(low, high, draw(factors), draw(st.integers(1, 5)), most)


def share(problem: Problem, size: int) -> Fraction:
    return evaluate(problem, Plan(size)).overhead


@pytest.mark.slow
@settings(max_examples=500)
@given(jobs(), st.data())
def test_it_settles_in_a_wide_enough_band_in_time_and_else_stays_near_it(
    job: tuple[Problem, Band], data: st.DataObject
) -> None:
    problem, band = job
    everything = range(1, band.max_group_size + 1)
    start = data.draw(st.sampled_from(everything))
    shares = {size: share(problem, size) for size in everything}
    first = min(size for size in everything if shares[size] <= band.high)
    last = max(size for size in everything if shares[size] >= band.low)
    landing = ceil(band.factor * (first - 1))
    if last - first + 1 < band.step:
        for size in group_sizes(problem, band, MOST + 21, State(start))[MOST:]:
            assert first - band.step <= size <= max(last, landing)
        return
    if start < first:
        promised = ceil(log(first / start) / log(band.factor) + 1e-9)
        promised += max(0, ceil(Fraction(landing - last, band.step)))
    else:
        promised = max(0, ceil(Fraction(start - last, band.step)))
    settled = group_sizes(problem, band, promised + 6, State(start))[promised:]
    assert set(settled) == {settled[0]}
    assert first <= settled[0] <= last


@settings(max_examples=150)
@given(problems("drizzle"), bands(), st.data())
def test_it_settles_at_the_end_that_is_nearest_to_a_band_out_of_reach(
    problem: Problem, band: Band, data: st.DataObject
) -> None:
    most = band.max_group_size
    too_high, too_low = share(problem, most) > band.high, share(problem, 1) < band.low
    assume(too_high or too_low)
    start = State(data.draw(st.integers(1, most)))
    settled = group_sizes(problem, band, MOST + 51, start)[-20:]
    assert set(settled) == {most if too_high else 1}


@settings(max_examples=200)
@given(bands(), st.integers(1, MOST), st.builds(Fraction, st.integers(0, 100), st.just(100)))
def test_one_step(band: Band, size: int, overhead: Fraction) -> None:
    after = adjusted(band, State(size), overhead).group_size
    assert 1 <= after <= band.max_group_size
    if overhead > band.high:
        assert after in (ceil(size * band.factor), band.max_group_size)
    elif overhead < band.low:
        assert after in (size - band.step, 1, band.max_group_size)
    else:
        assert after == min(size, band.max_group_size)


@settings(max_examples=100)
@given(problems("drizzle"), bands(), st.integers(1, MOST), st.integers(1, 20))
def test_a_simulation_adjusts_after_each_group(
    problem: Problem, band: Band, start: int, groups: int
) -> None:
    sizes, state = group_sizes(problem, band, groups, State(start)), State(start)
    assert len(sizes) == groups
    for size in sizes:
        assert state.group_size == size
        state = adjusted(band, state, share(problem, size))
    assert group_sizes(problem, band, groups) == group_sizes(problem, band, groups, State(1))


@settings(max_examples=200)
@given(problems("drizzle"))
def test_doubling_ends_at_less_than_twice_the_planned_size(problem: Problem) -> None:
    plan = solve(problem).plan
    assume(plan)
    high = Fraction(problem.max_overhead)
    sizes = group_sizes(problem, Band(high / 2, high), 64)
    planned = present(plan).group_size
    assert planned <= sizes[-1] < max(2 * planned, 2)
    assert sizes[(planned - 1).bit_length()] == sizes[-1]
