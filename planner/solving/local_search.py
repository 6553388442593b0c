"""Local search by first improvement.

Problem: among plans that a function values, find one with a small value.
Method: the best of the first candidates, then repeatedly the first neighbour that is better.
Guarantee: never worse than the plan it begins with.
Complexity: the first candidates and at most `budget` plans valued, none twice.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from fractions import Fraction
from typing import TypeVar

from planner.solving.deadline import Deadline

PlanT = TypeVar("PlanT", bound=Hashable)
Value = int | Fraction


def local_search(
    start: PlanT,
    value: Callable[[PlanT], Value | None],
    first: Iterable[PlanT],
    neighbours: Callable[[PlanT], Iterator[PlanT]],
    *,
    bound: Value,
    target: Value,
    budget: Callable[[PlanT], int],
    deadline: Deadline,
) -> tuple[PlanT, Value]:
    """Return the best plan found and its value.

    `value` is None for plans that are not allowed; `start` is allowed. The candidates `first` are
    all valued, until one reaches the lower bound `bound`. Then neighbours are valued until one
    reaches `target`, at most as many as the `budget` of the best candidate.
    """
    least = value(start)
    assert least is not None
    best, seen = start, {start}
    for plan in first if least > bound else ():
        if deadline.passed:
            return best, least
        if plan in seen:
            continue
        seen.add(plan)
        found = value(plan)
        if found is not None and found < least:
            best, least = plan, found
            if least <= bound:
                return best, least
    improving, left = True, budget(best) if least > target else 0
    while improving and least > target and not deadline.passed:
        improving = False
        for plan in neighbours(best):
            if left <= 0 or deadline.passed:
                return best, least
            if plan in seen:
                continue
            seen.add(plan)
            left -= 1
            found = value(plan)
            if found is not None and found < least:
                best, least, improving = plan, found, True
                break
    return best, least
