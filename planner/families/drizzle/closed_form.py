"""The smallest group within a limit on overhead and a limit on the time of a group.

Problem: minimise the time g·(T + o(g)) without a scheduling decision, over integers g >= 1, subject
to o(g)/(T + o(g)) <= u and g·(T + o(g)) <= A, with o(g) = S/g + R.

Method: the first limit is o(g) <= c = T·u/(1 - u), that is g >= S/(c - R). The time of a group,
g·(T + R) + S, does not decrease with g. So the smallest g within the first limit is optimal, and if
it breaks the second limit, every such g does.

Guarantee: optimal, or proof that the limits exclude each other; in exact fractions.
Complexity: O(1). Source: own; the limits are those of group scheduling in Venkataraman, Ding,
Ermolin.
"""

from fractions import Fraction
from math import ceil

from planner.families.drizzle.evaluation import Evaluation, evaluate, told_apart
from planner.families.drizzle.problem import Plan, Problem, triggers_of
from planner.model.units import format_ns
from planner.model.validation import MAX_TOTAL, total
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility


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
    overhead, limit = told_apart(least, Fraction(problem.max_overhead))
    return (
        "constant_task_ns for each task is paid by every iteration, whatever the group: "
        f"the overhead is {always} {overhead}, and max_overhead = {limit}"
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
