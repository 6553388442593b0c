"""Cost of a group size, and whether it is within the limits.

The one place where plans are priced and checked; it depends on no method. The overhead is given as
a share of the iteration, o/(T+o), and relative to computation, o/T, the axis of Fig. 4.

Complexity: O(1), and O(stages + dependencies) for the check.
Source: Venkataraman, Ding, Ermolin, Fig. 4 and section "What is Drizzle".
"""

from dataclasses import dataclass
from decimal import Context
from fractions import Fraction
from math import ceil

from planner.families.drizzle.problem import Plan, Problem, Stage, Triggers
from planner.model.errors import BrokenConstraintError, InvalidPlanError
from planner.model.validation import shown

# ---
# Shares as decimals with enough digits to show which is larger.

_DIGITS = (6, 17, 50)
"""Numbers of digits, tried in order; 17 always tell floats apart."""


def told_apart(first: Fraction, second: Fraction) -> tuple[str, str]:
    """Return two numbers as decimals with enough digits (up to 50) to differ if they do."""
    for digits in _DIGITS:
        context = Context(digits)
        rounded = [context.divide(*value.as_integer_ratio()) for value in (first, second)]
        if first == second or rounded[0] != rounded[1]:
            break
    return f"{rounded[0].normalize(context)}", f"{rounded[1].normalize(context)}"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Exact cost of a group size.

    Attributes
    ----------
    overhead_time : Fraction
        Scheduling time o of an iteration, in nanoseconds.
    iteration : Fraction
        Time T + o of an iteration, in nanoseconds.
    group : Fraction
        Time g·(T + o) of a group, in nanoseconds.
    overhead : Fraction
        o/(T + o); 0 if an iteration takes no time at all.
    overhead_of_compute : Fraction or None
        o/T; None if nothing is computed.
    speedup : Fraction
        Time of an iteration in groups of one, divided by its time here.
    """

    overhead_time: Fraction
    iteration: Fraction
    group: Fraction
    overhead: Fraction
    overhead_of_compute: Fraction | None
    speedup: Fraction

    @property
    def iteration_ns(self) -> int:
        """Time of an iteration, rounded up."""
        return ceil(self.iteration)

    @property
    def group_ns(self) -> int:
        """Time of a group, rounded up: how long the job goes without a scheduling decision."""
        return ceil(self.group)


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Price a plan with a group size of at least 1, whether or not it is within the limits."""
    size, computation = plan.group_size, problem.compute_ns
    spent = _overhead(problem, size)
    iteration = computation + spent
    alone = computation + _overhead(problem, 1)
    return Evaluation(
        overhead_time=spent,
        iteration=iteration,
        group=size * iteration,
        overhead=spent / iteration if iteration else Fraction(0),
        overhead_of_compute=spent / computation if computation else None,
        speedup=alone / iteration if iteration else Fraction(1),
    )


def _overhead(problem: Problem, size: int) -> Fraction:
    return problem.once_ns / size + problem.always_ns


def check(problem: Problem, plan: Plan) -> None:
    """Raise an error unless `plan` is a valid plan of `problem`.

    The group has at least one iteration and is within both limits. Each stage appears once, after
    the stages it waits for, with as many triggers as these have tasks.

    Raises
    ------
    InvalidPlanError
        With the path of the first fault.
    """
    if not isinstance(plan, Plan):
        raise InvalidPlanError("", f"expected a Plan, got {shown(plan)}")
    size = plan.group_size
    if type(size) is not int or size < 1:
        raise InvalidPlanError("group_size", f"expected an integer >= 1, got {shown(size)}")
    priced = evaluate(problem, plan)
    if priced.overhead > problem.max_overhead:
        share, most = told_apart(priced.overhead, Fraction(problem.max_overhead))
        raise BrokenConstraintError(
            "group_size",
            f"groups of {size} leave an overhead of {share}, more than max_overhead = {most}",
            "max_overhead",
        )
    limit = problem.max_group_ns
    if limit is not None and priced.group > limit:
        raise BrokenConstraintError(
            "group_size",
            f"a group of {size} takes {priced.group_ns} ns, more than max_group_ns = {limit}",
            "max_group_ns",
        )
    check_triggers(tuple(problem.stages), plan.stages)


def check_triggers(stages: tuple[Stage, ...], rows: tuple[Triggers, ...]) -> None:
    """Raise InvalidPlanError unless the rows hold each stage once, with the right triggers."""
    known = {stage.name: stage for stage in stages}
    followed = {name for stage in stages for name in stage.after}
    seen: set[str] = set()
    for place, row in enumerate(rows):
        path = f"stages[{place}]"
        if row.name not in known or row.name in seen:
            raise InvalidPlanError(f"{path}.name", f"expected another stage, got {shown(row.name)}")
        stage = known[row.name]
        if row.tasks != stage.tasks:
            raise InvalidPlanError(f"{path}.tasks", f"expected {stage.tasks}, got {row.tasks}")
        inside = set(stage.after)
        across = set() if inside else known.keys() - followed
        for field, names, triggers, expected in (
            ("after", row.after, row.triggers, inside),
            ("after_previous", row.after_previous, row.triggers_previous, across),
        ):
            if len(names) != len(expected) or set(names) != expected:
                raise InvalidPlanError(f"{path}.{field}", f"expected {sorted(expected)}")
            if triggers != sum(known[name].tasks for name in expected):
                raise InvalidPlanError(
                    f"{path}.{field.replace('after', 'triggers')}",
                    f"expected a trigger from each task of {sorted(expected)}, got {triggers}",
                )
        if not inside <= seen:
            raise InvalidPlanError(f"{path}.name", f"{shown(row.name)} stands before what it reads")
        seen.add(row.name)
    if len(seen) < len(stages):
        raise InvalidPlanError("stages", f"without {sorted(known.keys() - seen)}")
