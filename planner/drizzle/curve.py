"""Costs of other group sizes, shown next to a plan."""

from planner.drizzle.closed_form import largest_group
from planner.drizzle.evaluation import Evaluation, evaluate
from planner.drizzle.problem import Plan, Problem
from planner.validation import MAX_TOTAL

__all__ = ["curve"]

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
