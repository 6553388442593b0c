"""Problems of group scheduling, and literal formulas to hold the code against."""

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from planner.families.drizzle import Problem, Stage
from tests.present import present


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
    sizes = [size for size in range(1, most + 1) if keeps(problem, size)]
    return min(
        sizes,
        key=lambda size: size * (problem.compute_ns + literal_overhead(problem, size)),
        default=None,
    )


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
