"""The size of a group: its cost, the smallest one within the limits, and an online rule.

Plans are priced and checked here only, whatever made them. The overhead is given as a share of the
iteration, o/(T+o), and relative to computation, o/T, the axis of Fig. 4.

Complexity: O(1), and O(stages + dependencies) for the check.
Source: Venkataraman, Ding, Ermolin, Fig. 4 and section "What is Drizzle".
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from planner.families.drizzle.problem import Plan, Problem, check_triggers, triggers_of
from planner.model.errors import BrokenConstraintError, InvalidInputError, InvalidPlanError
from planner.model.units import format_ns
from planner.model.validation import (
    MAX_TOTAL,
    MAX_VALUE,
    exact,
    integer,
    set_exact,
    set_integer,
    shown,
    total,
)
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility


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
        raise BrokenConstraintError(
            "group_size",
            f"groups of {size} leave an overhead of {float(priced.overhead):.6g}, more than "
            f"max_overhead = {float(problem.max_overhead):.6g}",
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


# ---
# The smallest group within a limit on overhead and a limit on the time of a group.
#
# Problem: minimise the time g·(T + o(g)) without a scheduling decision, over integers g >= 1,
# subject to o(g)/(T + o(g)) <= u and g·(T + o(g)) <= A, with o(g) = S/g + R.
#
# Method: the first limit is o(g) <= c = T·u/(1 - u), that is g >= S/(c - R). The time of a group,
# g·(T + R) + S, does not decrease with g. So the smallest g within the first limit is optimal, and
# if it breaks the second limit, every such g does.
#
# Guarantee: optimal, or proof that the limits exclude each other; in exact fractions. Source: own.


def smallest_group(problem: Problem) -> int | None:
    """Return the smallest group size within the limit on overhead, or None."""
    share = Fraction(problem.max_overhead)
    room = problem.compute_ns * share / (1 - share) - problem.always_ns
    if room < 0:
        return None
    if problem.once_ns == 0:
        return 1
    return max(1, ceil(problem.once_ns / room)) if room else None


def largest_group(problem: Problem) -> int | None:
    """Return the largest group size within the limit on time, 0 if none is, None if unlimited."""
    each = problem.compute_ns + problem.always_ns
    if problem.max_group_ns is None:
        return None
    room = problem.max_group_ns - problem.once_ns
    if room < 0:
        return 0
    return int(room // each) if each else None


def solve_exact(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Return the smallest group within both limits.

    InvalidInputError if the time of a group is unlimited and does not fit in 63 bits.
    """
    least, most = smallest_group(problem), largest_group(problem)
    if least is None or (most is not None and most < least):
        return Outcome(None, infeasibility=_why_not(problem, least, most))
    bound = ceil(least * (problem.compute_ns + problem.always_ns) + problem.once_ns)
    total(bound, "max_overhead", "the time of the smallest group that keeps it")
    return Outcome(Plan(least, triggers_of(tuple(problem.stages))), bound)


def _why_not(problem: Problem, least: int | None, most: int | None) -> Infeasibility:
    reasons, binding = [], []
    if least is None:
        reasons.append(_never_low_enough(problem))
        binding.append("max_overhead")
    if most == 0:
        alone = ceil(problem.compute_ns + problem.once_ns + problem.always_ns)
        reasons.append(
            f"even a group of one iteration takes {alone} ns ({format_ns(alone)}), "
            f"more than max_group_ns = {problem.max_group_ns}"
        )
        binding.append("max_group_ns")
    if reasons:
        return Infeasibility("; ".join(reasons), tuple(binding))
    return Infeasibility(
        f"max_overhead = {float(problem.max_overhead):.6g} needs groups of at least {least}, "
        f"max_group_ns = {problem.max_group_ns} allows at most {most}",
        ("max_overhead", "max_group_ns"),
    )


def _never_low_enough(problem: Problem) -> str:
    if not problem.compute_ns:
        return "nothing is computed, so that scheduling takes all of the time in any group"
    least = problem.always_ns / (problem.compute_ns + problem.always_ns)
    always = "always above" if problem.once_ns else "always"
    return (
        "constant_task_ns for each task is paid by every iteration, whatever the group: the "
        f"overhead is {always} {float(least):.6g}, and max_overhead = "
        f"{float(problem.max_overhead):.6g}"
    )


# ---
# Costs of other group sizes, shown next to a plan.

_BEYOND = 4
"""The curve extends to at least this multiple of the chosen size."""
_FAR = 1000
_FEW = 8


def curve(problem: Problem, chosen: int) -> tuple[tuple[int, Evaluation], ...]:
    """Return some group sizes, in order, each with its cost.

    The sizes are powers of two (every size if there are few), the chosen size and, unless it is far
    away, the largest within the limit on time; as long as times fit in 63 bits.
    """
    largest = largest_group(problem) or chosen
    if largest > _FAR * chosen:
        largest = chosen
    sizes = {chosen, largest}
    size = 1
    while size < max(_BEYOND * chosen, 2 * largest):
        sizes.add(size)
        size *= 2
    sizes |= set(range(1, size + 1)) if size <= _FEW else {size}
    priced = ((size, evaluate(problem, Plan(size))) for size in sorted(sizes))
    return tuple(
        (size, evaluation) for size, evaluation in priced if evaluation.group_ns <= MAX_TOTAL
    )


# ---
# Online rule for the group size: multiplicative increase, additive decrease.
#
# Problem: keep the share s(g) of scheduling in an iteration within a band [low, high] while the
# constants are unknown or change. Method: multiply g by `factor` (rounded up) if the last group's
# share is above `high`, subtract `step` if it is below `low`; stay within [1, max_group_size].
# Guarantee: if s does not increase with g and the band holds at least `step` sizes, g enters it
# from any start and stays; see docs/drizzle.md, "Why the online rule settles". Source: Venkataraman
# et al., "Drizzle: Fast and Adaptable Stream Processing at Scale" (SOSP'17), section 3.4, after
# TCP; the guarantee is own.


@dataclass(frozen=True, slots=True)
class Band:
    """Band for the share of scheduling, and how the group size changes.

    Attributes
    ----------
    low, high : Fraction
        The band; 0 <= low <= high < 1.
    factor : Fraction
        Factor above 1 by which the group size is multiplied.
    step : int
        Number that is subtracted from the group size.
    max_group_size : int
        Largest group size, such as the largest within a limit on the time of a group.

    Raises
    ------
    InvalidInputError
        If a value is out of range, with its name.
    """

    low: Fraction
    high: Fraction
    factor: Fraction = Fraction(2)
    step: int = 1
    max_group_size: int = MAX_VALUE

    def __post_init__(self) -> None:
        for name in ("low", "high", "factor"):
            set_exact(self, name)
        if not 0 <= self.low < 1:
            raise InvalidInputError("low", f"expected a number >= 0 and < 1, got {self.low}")
        if not self.low <= self.high < 1:
            raise InvalidInputError("high", f"expected a number >= low and < 1, got {self.high}")
        if self.factor <= 1:
            raise InvalidInputError("factor", f"expected a number > 1, got {self.factor}")
        set_integer(self, "step", minimum=1)
        set_integer(self, "max_group_size", minimum=1)


@dataclass(frozen=True, slots=True)
class State:
    """State of the online rule.

    Attributes
    ----------
    group_size : int
        Iterations of the next group.
    """

    group_size: int = 1

    def __post_init__(self) -> None:
        set_integer(self, "group_size", minimum=1)


def adjusted(band: Band, state: State, overhead: Fraction) -> State:
    """Return the state after a group.

    Parameters
    ----------
    band : Band
        Band for the overhead.
    state : State
        The state with which the group ran.
    overhead : Fraction
        The group's measured share of scheduling, from 0 to 1; average it first if it is noisy.

    Raises
    ------
    InvalidInputError
        If `overhead` is not from 0 to 1.
    """
    overhead = exact(overhead, "overhead")
    if overhead > 1:
        raise InvalidInputError("overhead", f"expected a number from 0 to 1, got {overhead}")
    size = state.group_size
    if overhead > band.high:
        size = ceil(size * band.factor)
    elif overhead < band.low:
        size -= band.step
    return State(min(max(size, 1), band.max_group_size))


def group_sizes(
    problem: Problem, band: Band, groups: int, start: State | None = None
) -> tuple[int, ...]:
    """Return the sizes of successive groups under the cost model of a problem.

    Parameters
    ----------
    problem : Problem
        Computation and scheduling costs of an iteration; its limits are not used.
    band : Band
        Band for the overhead.
    groups : int
        How many groups to simulate, the first one included; at least 1.
    start : State, optional
        The state of the first group; by default a group of one.

    Raises
    ------
    InvalidInputError
        If `groups` is not an integer of at least 1.
    """
    states = [start or State()]
    for _ in range(integer(groups, "groups", minimum=1) - 1):
        plan = Plan(states[-1].group_size)
        states.append(adjusted(band, states[-1], evaluate(problem, plan).overhead))
    return tuple(state.group_size for state in states)
