"""Which jobs of a log repeat, and what their rounds say, against a search that tries everything."""

from fractions import Fraction
from itertools import accumulate, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.drizzle import Plan, evaluate, solve
from planner.families.drizzle.loops import (
    Job,
    Loop,
    Round,
    StageShape,
    in_words,
    loops_of,
    measurements_of,
    problem_of,
)
from planner.model.errors import InvalidInputError


def job(number: int, kind: str, *, lasts: int = 10, computes: int = 6, size: int = 0) -> Job:
    shape = (StageShape(kind, 2, ()),)
    start = 100 * number
    return Job(number, start, start + lasts, size, shape, computes, True, 0)


def jobs_of(kinds: str) -> list[Job]:
    return [job(number, kind) for number, kind in enumerate(kinds)]


def stretches(loops: tuple[Loop, ...]) -> list[tuple[int, int, int]]:
    """Return where each loop starts, its pattern and its rounds, the last one included."""
    return [
        (
            loop.jobs[0].number - len(loop.jobs) * len(loop.rounds),
            len(loop.jobs),
            len(loop.rounds) + 1,
        )
        for loop in loops
    ]


def tried(kinds: str) -> list[tuple[int, int, int]]:
    """Return the same by trying every pattern at every place."""
    found, start = [], 0
    while start < len(kinds):
        choices = [
            (pattern * rounds, -pattern)
            for pattern, rounds in product(range(1, len(kinds) + 1), range(3, len(kinds) + 1))
            if pattern * rounds <= len(kinds) - start
            and kinds[start : start + pattern] * rounds == kinds[start : start + pattern * rounds]
        ]
        if not choices:
            start += 1
            continue
        length, pattern = max(choices)
        found.append((start, -pattern, length // -pattern))
        start += length
    return found


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("abxyxyxyc", [(2, 2, 3)]),
        ("aaaa", [(0, 1, 4)]),
        ("aabaabaabx", [(0, 3, 3)]),
        ("aaabaaabaaab", [(0, 4, 3)]),
        ("abab", []),
        ("aaabbb", [(0, 1, 3), (3, 1, 3)]),
    ],
)
def test_loops_of_a_few_jobs(kinds: str, expected: list[tuple[int, int, int]]) -> None:
    assert stretches(loops_of(jobs_of(kinds))) == expected == tried(kinds)


@settings(max_examples=300)
@given(st.text("ab", max_size=14) | st.text("abc", max_size=20))
def test_loops_are_those_of_trying_everything(kinds: str) -> None:
    assert stretches(loops_of(jobs_of(kinds))) == tried(kinds)


def test_jobs_that_ran_nothing_are_no_part_of_a_loop() -> None:
    jobs = [job(0, "a"), job(1, "a"), job(2, "a")]
    skipped = Job(9, 150, 160, 0, (), 0, True, 0)
    assert len(loops_of([jobs[0], skipped, *jobs[1:]])) == 1


@given(
    st.integers(1, 50),
    st.integers(0, 400),
    st.integers(0, 400),
    st.lists(st.integers(1, 12), min_size=4, max_size=8).filter(lambda sizes: len(set(sizes)) > 1),
)
def test_constants_of_groups_are_found_again(
    tasks: int, once: int, compute: int, sizes: list[int]
) -> None:
    """A log of groups that last what the model says leads to a problem that says the same."""
    compute, walls = compute + 100, []
    walls = [1000 * (once + compute * size) for size in sizes]
    starts = [0, *accumulate(walls)]
    shape = (StageShape("group", tasks, ()),)
    jobs = [
        Job(place, start, start + 1, size, shape, 1000 * compute * size, True, 0)
        for place, (start, size) in enumerate(zip(starts, [*sizes, 1], strict=True))
    ]
    loops = loops_of(jobs)
    problem, fitted = problem_of(loops, max_overhead=Fraction(1, 20), max_group_ns=None)
    assert problem.compute_ns == 1000 * compute
    for row, error in zip(measurements_of(loops), fitted.errors, strict=True):
        assert abs(error * row.overhead_ns) < 2  # rounded to whole nanoseconds
        predicted = evaluate(problem, Plan(row.group_size)).overhead_time
        assert abs(predicted - row.overhead_ns) < 2


def test_no_loop_is_no_problem() -> None:
    with pytest.raises(InvalidInputError, match="no jobs that repeat at least 3 times"):
        problem_of((), max_overhead=Fraction(1, 20), max_group_ns=None)


def rounds(wall: int, compute: int, between: int, size: int = 1) -> Loop:
    row = Round(size, wall * size, compute * size, between * size, disturbed=False)
    return Loop((job(0, "a", size=0),), (row, row), grouped=size > 1, overlapping=False)


def test_what_is_said_is_what_was_measured_and_planned() -> None:
    loop = rounds(1000, 770, 0)
    problem, _ = problem_of([loop], max_overhead=Fraction(1, 20), max_group_ns=None)
    plan = solve(problem).plan
    assert plan is not None
    told = in_words(loop, plan.group_size, Fraction(1, 20))
    assert told == (
        "your driver spends 23 % of each iteration scheduling; groups of 6 iterations bring it "
        "below 5 %"
    )
    assert (
        evaluate(problem, Plan(6)).overhead <= Fraction(1, 20) < evaluate(problem, Plan(5)).overhead
    )
    assert "20 % between jobs" in in_words(rounds(1000, 770, 200), 6, Fraction(1, 20))
    assert "no group within the limits" in in_words(loop, None, Fraction(1, 20))
    assert "single iterations keep it below 5 %" in in_words(
        rounds(1000, 990, 0), 1, Fraction(1, 20)
    )
    few = rounds(1000, 990, 0)
    assert in_words(few, None, Fraction(1, 20)).endswith(", which is below 5 % already")
    assert "in groups of 4" in in_words(rounds(1000, 900, 0, 4), 9, Fraction(1, 20))
