"""What is no problem, no graph of stages, no band, and no measurements, and where that is said."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from planner import InvalidInputError
from planner.families.drizzle import (
    Band,
    Measurement,
    Problem,
    Stage,
    State,
    adjusted,
    calibrate,
    group_sizes,
)
from planner.model.validation import MAX_VALUE
from tests.drizzle.drizzle_strategies import example_of

RANGE = f"expected a number from 0 to {MAX_VALUE}, got"
LEAST = "expected an integer >= 1, got"
TOO_MUCH = MAX_VALUE * 390_000 + 900_000_000
HALF = Band(Fraction(0), Fraction(1, 2))
BROKEN: list[tuple[dict[str, Any], str, str]] = [
    ({"compute_ns": -1}, "compute_ns", "expected an integer >= 0, got -1"),
    ({"compute_ns": 2.0}, "compute_ns", "expected an integer >= 0, got 2.0"),
    ({"tasks": 0}, "tasks", f"{LEAST} 0"),
    ({"tasks": None}, "tasks", "missing (or stages)"),
    ({"group_ns": -1}, "group_ns", f"{RANGE} -1"),
    ({"constant_task_ns": 2**62 + 1}, "constant_task_ns", f"{RANGE} {2**62 + 1}"),
    ({"max_overhead": 0}, "max_overhead", "expected a number > 0 and < 1, got 0"),
    ({"max_overhead": 1}, "max_overhead", "expected a number > 0 and < 1, got 1"),
    ({"max_overhead": None}, "max_overhead", f"{RANGE} null"),
    ({"max_group_ns": 0}, "max_group_ns", f"{LEAST} 0"),
    (
        {"tasks": MAX_VALUE},
        "task_ns",
        f"the time of a group of one must fit in 63 bits, got {TOO_MUCH}",
    ),
]
ONE: tuple[Any, ...] = (Stage("a", 1),)
CYCLE = (*ONE, Stage("b", 1, ("d", "a")), Stage("c", 1, ("b",)), Stage("d", 1, ("c",)))
STAGES: list[tuple[Any, str, str]] = [
    ("stages", "stages", "expected an array, got 'stages'"),
    (({"name": "a"},), "stages[0]", "expected a Stage, got an object"),
    ((Stage(3, 1),), "stages[0].name", "expected a string, got 3"),  # type: ignore[arg-type]
    ((Stage("a", 0),), "stages[0].tasks", f"{LEAST} 0"),
    ((*ONE, Stage("b", 1), *ONE), "stages[2].name", "'a' given twice, first in stages[0]"),
    (
        (Stage("gradient", 1), Stage("b", 1, ("gradeint",))),
        "stages[1].after[0]",
        "no stage is called 'gradeint'; did you mean 'gradient'?",
    ),
    ((*ONE, Stage("b", 1, ("xyz",))), "stages[1].after[0]", "no stage is called 'xyz'"),
    ((*ONE, Stage("b", 1, ("a", "a"))), "stages[1].after[1]", "'a' given twice"),
    ((Stage("a", 1, ["b"]),), "stages[0].after", "expected names, got an array"),  # type: ignore[arg-type]
    ((*ONE, Stage("b", 1, (7,))), "stages[1].after[0]", "expected a string, got 7"),  # type: ignore[arg-type]
    ((Stage("a", 1, ("a",)),), "stages[0].after", "the stages form a cycle: a -> a"),
    (CYCLE, "stages[1].after", "the stages form a cycle: b -> c -> d -> b"),
    (
        (Stage("a", MAX_VALUE), Stage("b", 1)),
        "stages",
        f"expected at most {MAX_VALUE} tasks together, got {MAX_VALUE + 1}",
    ),
]
BANDS: list[tuple[Any, str, str]] = [
    ((0, True), "high", f"{RANGE} true"),
    ((-1, 0), "low", f"{RANGE} -1"),
    ((1, 1), "low", "expected a number >= 0 and < 1, got 1"),
    ((Fraction(1, 2), 0), "high", "expected a number >= low and < 1, got 0"),
    ((0, 1), "high", "expected a number >= low and < 1, got 1"),
    ((0, 0, 1), "factor", "expected a number > 1, got 1"),
    ((0, 0, 2, 0), "step", f"{LEAST} 0"),
    ((0, 0, 2, 1, 0), "max_group_size", f"{LEAST} 0"),
]
MEASURED: list[tuple[Any, str, str]] = [
    (None, "measurements", "expected an array, got null"),
    ({1: 2}, "measurements", "expected an array, got an object"),
    ([], "measurements", "expected at least one element, got an empty array"),
    ([3], "measurements[0]", "expected a Measurement, got 3"),
    ([Measurement(0, 1, 1)], "measurements[0].tasks", f"{LEAST} 0"),
    ([Measurement(1, 1, 1), Measurement(1, 0, 1)], "measurements[1].group_size", f"{LEAST} 0"),
    ([Measurement(1, 1, 0)], "measurements[0].overhead_ns", f"{LEAST} 0"),
]
staged = partial(Problem, compute_ns=1000, task_ns=1, max_overhead=0.5)
REFUSED: list[tuple[Callable[[], object], str, str]] = [
    *((partial(example_of, **change), path, message) for change, path, message in BROKEN),
    *((partial(staged, stages=stages), path, message) for stages, path, message in STAGES),
    *((partial(Band, *fields), path, message) for fields, path, message in BANDS),
    *((partial(calibrate, rows), path, message) for rows, path, message in MEASURED),
    (partial(State, 0), "group_size", f"{LEAST} 0"),
    (partial(adjusted, HALF, State(), Fraction(-1)), "overhead", f"{RANGE} -1"),
    (
        partial(adjusted, HALF, State(), Fraction(3, 2)),
        "overhead",
        "expected a number from 0 to 1, got 3/2",
    ),
    (partial(group_sizes, example_of(), HALF, 0), "groups", f"{LEAST} 0"),
]


@pytest.mark.parametrize(("ask", "path", "message"), REFUSED)
def test_what_cannot_be_is_refused(ask: Callable[[], object], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        ask()
    assert (caught.value.path, caught.value.message) == (path, message)
