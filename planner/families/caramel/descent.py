"""Local search on the contents and the order of transfers.

Problem: improve transfers whose windows are not nested.
Rule: something must change in the critical block, the sequence of transfers without idle time that
ends the iteration. Two neighbours merge or swap, a transfer moves behind the critical one, or a
transfer is cut in two. The first improvement is kept: a shorter iteration, or at equal length a
smaller sum of time over the target.
Guarantee: never worse than the start; a local optimum unless the budget runs out. The budget counts
prices, not seconds, so that the same request gets the same answer.
Complexity: O(transfers + parts of two transfers) per price.
Source: own; critical blocks as in Carlier, EJOR 11 (1982), and in local search for job shops.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from planner.families.caramel.pricing import Load, LoadPricer
from planner.solving.deadline import Deadline
from planner.solving.tie_break import DELAYS, NOMINAL, Delay, Limit

MAX_CUTS = 8
"""Places at which a transfer is cut, at most."""


class _Transfer(NamedTuple):
    parts: Load
    head: int
    tail: int
    duration: int


def descend(
    pricer: LoadPricer,
    loads: Sequence[Load],
    target: int,
    budget: int,
    deadline: Deadline,
    delay: Delay = NOMINAL,
    limits: Sequence[Limit] = (),
) -> list[Load]:
    """Return loads at least as good as `loads` under the delay scenario `delay`.

    The search ends at `target`, a lower bound, or after `budget` prices (fewer for more transfers
    than `LoadPricer.many`). `loads` keep to `limits`, and so does the result.
    """
    left = pricer.looks(budget, loads)
    if not left:
        return list(loads)
    now = [_transfer(pricer, load) for load in loads]
    value = _value(pricer, now, target, delay)
    improved = True
    while improved and value[0] > target and left > 0 and not deadline.passed:
        improved = False
        for changed in _changes(pricer, now, delay):
            left -= 1
            new = _value(pricer, changed, target, delay)
            if new < value and all(
                _value(pricer, changed, most, other)[0] <= most for other, most in limits
            ):
                now, value, improved = changed, new, True
                break
            if left <= 0 or deadline.passed:
                break
    return [transfer.parts for transfer in now]


def neighbours(pricer: LoadPricer, loads: Sequence[Load]) -> Iterator[list[Load]]:
    """Yield loads with one change that may make the iteration shorter."""
    for changed in _changes(pricer, [_transfer(pricer, load) for load in loads], NOMINAL):
        yield [transfer.parts for transfer in changed]


def _transfer(pricer: LoadPricer, parts: Load) -> _Transfer:
    ((head, duration, tail),) = pricer.steps((parts,))
    return _Transfer(parts, head, tail, duration)


def _value(
    pricer: LoadPricer, transfers: list[_Transfer], target: int, delay: Delay
) -> tuple[int, int]:
    """Return the iteration time under a delay scenario, and the sum of time over the target."""
    slower, longer = delay
    free, end, over = 0, longer * pricer.windows.compute_ns, 0
    for _, head, tail, duration in transfers:
        free = max(free, longer * head) + slower * duration
        late = free + longer * tail
        if late > target:
            over += late - target
            end = max(end, late)
    return end, over


def _block(transfers: list[_Transfer], delay: Delay) -> tuple[int, int]:
    """Return the first and the last transfer of the critical block."""
    slower, longer = delay
    free, worst = 0, -1
    start = first = last = 0
    for place, (_, head, tail, duration) in enumerate(transfers):
        if longer * head >= free:
            start = place
            free = longer * head
        free += slower * duration
        if free + longer * tail > worst:
            worst, first, last = free + longer * tail, start, place
    return first, last


def _changes(pricer: LoadPricer, now: list[_Transfer], delay: Delay) -> Iterator[list[_Transfer]]:
    """Yield neighbours of a list of transfers, the cheapest and most promising first."""
    first, last = _block(now, delay)
    for place in range(max(first - 1, 0), min(last + 1, len(now) - 1)):
        earlier, later = now[place], now[place + 1]
        yield [*now[:place], _transfer(pricer, earlier.parts + later.parts), *now[place + 2 :]]
        yield [*now[:place], later, earlier, *now[place + 2 :]]
    for place in range(first, last):
        if now[place].tail < now[last].tail:
            yield [*now[:place], *now[place + 1 : last + 1], now[place], *now[last + 1 :]]
    for place in range(last, first - 1, -1):
        for urgent, rest in _cuts(pricer, now[place].parts):
            before, behind = now[:place], now[place + 1 :]
            here, deferred = _transfer(pricer, urgent), _transfer(pricer, rest)
            yield [*before, here, deferred, *behind]
            yield [*before, deferred, here, *behind]
            after = last - place
            if after:
                yield [*before, here, *behind[:after], deferred, *behind[after:]]
            for target, transfer in enumerate(behind):
                joined = _transfer(pricer, transfer.parts + rest)
                yield [*before, here, *behind[:target], joined, *behind[target + 1 :]]
            for target, transfer in enumerate(before):
                joined = _transfer(pricer, transfer.parts + urgent)
                yield [*before[:target], joined, *before[target + 1 :], deferred, *behind]


def _cuts(pricer: LoadPricer, parts: Load) -> Iterator[tuple[Load, Load]]:
    """Yield ways to cut a transfer in two: by tails and by heads."""
    for values in (pricer.windows.tails, pricer.windows.heads):
        ordered = tuple(sorted(parts, key=lambda part: (-values[part[0]], part)))
        places = [
            place
            for place in range(1, len(ordered))
            if values[ordered[place][0]] != values[ordered[place - 1][0]]
        ]
        step = max(1, -(-len(places) // MAX_CUTS))
        for place in places[::step]:
            yield ordered[:place], ordered[place:]


# ---
# Tie-breaking by local search: less delay-sensitive loads of equal iteration time.
#
# Method: `descend` under one delay scenario (`delay`) after the other
# (`planner.solving.tie_break`). A change must not worsen the iteration or an earlier scenario.
# Guarantee: never longer and never more sensitive than the start. Complexity: a fixed budget of
# prices per scenario. Source: own.


def less_sensitive(
    pricer: LoadPricer, loads: Sequence[Load], budget: int, deadline: Deadline
) -> list[Load]:
    """Return loads that last no longer and are at most as sensitive to delays.

    `budget` limits the prices per delay scenario.
    """
    if not pricer.looks(budget, loads):
        return list(loads)
    value, best = pricer.iteration_ns(loads), list(loads)
    limits = [Limit(NOMINAL, value)]
    for delay in DELAYS:
        target = max(min(delay) * value, delay.compute * pricer.windows.compute_ns)
        found = descend(pricer, best, target, budget, deadline, delay, limits)
        if pricer.under(delay, found) < pricer.under(delay, best):  # else worse in a later scenario
            best = found
        limits.append(Limit(delay, pricer.under(delay, best)))
    return best
