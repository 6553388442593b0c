"""What other group sizes would do, for whoever looks at a plan.

Complexity: O(log g). Source: own.
"""

from planner.drizzle.closed_form import largest_group
from planner.drizzle.evaluation import Evaluation, evaluate
from planner.drizzle.problem import Plan, Problem
from planner.validation import MAX_TOTAL

__all__ = ["curve"]

_BEYOND = 4
"""How many times the chosen size the curve goes on at least."""
_FAR = 1000
_FEW = 8


def curve(problem: Problem, chosen: int) -> tuple[tuple[int, Evaluation], ...]:
    """Return some group sizes, in order, and what each costs.

    Powers of two (every size if these are few), the chosen size and, if it is not far away, the
    largest within the limit on the time of a group; as far as times fit in 63 bits.
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
