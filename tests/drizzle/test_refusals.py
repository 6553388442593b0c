"""What is no problem, no graph of stages, no band, and no measurements, and where that is said.

Numbers below 0 are refused in `tests/test_numbers.py`.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from planner.families.drizzle import Band, Measurement, Problem, Stage, State, adjusted, calibrate
from planner.families.drizzle.evaluation import group_sizes
from planner.families.drizzle.loops import problem_of
from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_VALUE
from tests.drizzle.drizzle_strategies import example_of

RANGE = f"expected a number from 0 to {MAX_VALUE}, got"
LEAST = "expected an integer >= 1, got"
SHARE = "expected a number > 0 and < 1, got"
TOO_MUCH = MAX_VALUE * 390_000 + 900_000_000
LONG = f"the time of a group of one must fit in 63 bits, got {TOO_MUCH}"
TOGETHER = "expected as many as the stages have (1), got 2"
NO_LOOP = "no jobs that repeat at least 3 times one after the other: no iterations"
HALF = Band(Fraction(0), Fraction(1, 2))
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
    ([Measurement(1, 1, 1), Measurement(1, 0, 1)], "measurements[1].group_size", f"{LEAST} 0"),
    ([Measurement(1, 1, 0)], "measurements[0].overhead_ns", f"{LEAST} 0"),
]
staged = partial(Problem, compute_ns=1000, task_ns=1, max_overhead=0.5)
logged = partial(problem_of, (), max_overhead=Fraction(1, 20), max_group_ns=None)
share_of = partial(adjusted, HALF, State())
REFUSED: list[tuple[Callable[[], object], str, str]] = [
    *((partial(example_of, **change), path, message) for change, path, message in BROKEN),
    *((partial(staged, stages=stages), path, message) for stages, path, message in STAGES),
    *((partial(Band, *fields), path, message) for fields, path, message in BANDS),
    *((partial(calibrate, rows), path, message) for rows, path, message in MEASURED),
    (partial(State, 0), "group_size", f"{LEAST} 0"),
    (partial(share_of, Fraction(-1)), "overhead", f"{RANGE} -1"),
    (partial(share_of, Fraction(3, 2)), "overhead", "expected a number from 0 to 1, got 3/2"),
    (partial(group_sizes, example_of(), HALF, 0), "groups", f"{LEAST} 0"),
    (logged, "", NO_LOOP),
]


@pytest.mark.parametrize(("ask", "path", "message"), REFUSED)
def test_what_cannot_be_is_refused(ask: Callable[[], object], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        ask()
    assert (caught.value.path, caught.value.message) == (path, message)
