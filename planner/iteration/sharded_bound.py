"""A start-up-aware bound on sharded plans: pushes and pulls counted apart.

Problem: pushes leave once their gradients are ready, pulls end before the forward pass reads, each
byte is pushed before it is pulled, all on one channel, at α + β·bytes a transfer. Which iteration
M does no such plan undercut, however it cuts, groups and orders?

A transfer may also cost the least of several such lines. With α the least of their start-ups that
is α + g(bytes) with a concave g, so that k transfers of s bytes need at least α·k + g(s). No
transfer is both a push and a pull: below u and v, the time for bytes pushed and pulled, are g of
them, and add up.

Windows are nested, the innermost first, with heads h and tails t that do not rise (those that are
not are widened, `planner.caramel.nested`). The *index* of a transfer is its innermost window. Of a
plan let A_e be the pushes of index ≤ e, with u_e time for their bytes, and B_m the pulls of index
≤ m, with v_m. A push of index p starts at h_p or later; a pull of index q starts at B or later,
when the backward pass has ended and all gradients are ready, and ends at M - t_q or earlier. A push
that starts before h_0 is called *left*, a push or a pull that ends after M - t_0 *right*. The
latest of A_m and B_m is a pull. With x the largest index of a left push in A_e, y that of a right
pull in B_m, all of A_e and B_m lies between h_x and M - t_y, for e = m always, and for all e and m
as long as no push in A_e is right. So with F_e = α·|A_e| + u_e + h_x and G_m = α·|B_m| + v_m + t_y:

1. Always M ≥ B + max G_m; without right pushes M ≥ max F_e + max G_m too, which is at least the
   least of the first plus the least of the second: iBatch both ways, up to cuts and rounding. It is
   no less for the heads as they are, since no pull starts before any of them.
2. Always M ≥ F_m + G_m, start-ups of right pushes included.
3. Let X be B, or the most F_e of the indices below those of the right pushes if that is more. Then
   F_e ≤ X for these e, and G_m ≤ M - X for all m.
4. If r is the largest index of a right push in A_e, all of A_e and B_r ends at M - t_r or earlier:
   α·(|A_e| + |B_r|) + u_e + v_r + h_x + t_r ≤ M.

The bound is the lesser of 1 and of the least M that 2, 3 and 4 leave to plans with a right push.
These are tried as in `planner.caramel.nested`: grow outwards from the innermost window, and open a
left push, a right pull or a right push (which needs a right pull) only at the first window that
does not fit. A plan has opened no fewer by then, and none later, so what is open here is never
more, and reaches at least as far; in 4 the least of α·|B_m| + v_m + t_m over all m up to the
opening stands for an r that may come earlier. X is divided into intervals; 3 is asked of the end
that suits it.

Guarantee: no sharded plan of the windows lasts less. The bound can be below the best M by what a
transfer loses that would have to be interrupted, or because the search ran out of `STATES`.

Complexity: O(states² + states · log n) a target, O(log M) targets, at most `STATES` states in all.
Source: own; the growth as in `planner.caramel.nested`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from math import lcm
from operator import add
from typing import NamedTuple

from planner.caramel.nested import Line, Nested, widened
from planner.caramel.windows import Windows
from planner.validation import MAX_VALUE

__all__ = ["UnitCost", "ends_by", "least_end", "sharded_bound"]

STATES = 1500
"""States looked at in all for one set of nested windows; what is not proven by then is not said."""

INTERVALS = 4
"""Intervals of X."""

PRECISION = 13
"""The bound is searched to a part in 2^13."""

LEFT_PUSH, RIGHT_PULL, RIGHT_PUSH = 1, 2, 4

OPENINGS = sorted(range(1, 8), key=lambda opened: (opened.bit_count(), opened))
"""Sets of what is opened at a window, the smaller ones first."""


class UnitCost:
    """The least of several lines in a unit of time of which everything is a multiple.

    Parameters
    ----------
    lines : sequence of Line
        At least one.

    Attributes
    ----------
    unit : int
        Units of a nanosecond.
    startup : int
        α, the least start-up.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self.unit = lcm(*(value.denominator for line in lines for value in line))
        self._lines = [(int(a * self.unit), int(b * self.unit)) for a, b in lines]
        self.startup = min(startup for startup, _ in self._lines)

    def of(self, size: int) -> int:
        """Return what one transfer costs."""
        return min(startup + rate * size for startup, rate in self._lines)

    def room(self, time: int) -> int:
        """Return the most bytes one transfer can carry in a time; 0 if it is too short."""
        return max(
            (time - startup) // rate if rate else MAX_VALUE if time > startup else 0
            for startup, rate in self._lines
        )

    def ns(self, time: int) -> int:
        """Return a time in ns, rounded up."""
        return -(-time // self.unit)

    def beyond(self, sizes: Iterable[int]) -> list[int]:
        """Return g of the bytes up to each of some."""
        return [self.of(size) - self.startup for size in accumulate(sizes)]


def sharded_bound(
    windows: Windows,
    pushed: Sequence[int],
    pulled: Sequence[int],
    lines: Sequence[Line],
    least_ns: int,
) -> int:
    """Return a bound that is at least `least_ns`, which is another one.

    Parameters
    ----------
    windows : Windows
        Heads, tails and the end of the backward pass; its sizes do not count.
    pushed, pulled : sequence of int
        Bytes of each gradient, and of each parameter.
    lines : sequence of Line
        A push, or a pull, costs the least of them.
    least_ns : int
        A bound on the same plans.
    """
    cost = UnitCost(lines)
    if len(lines) == 1 and not cost.startup:
        return least_ns  # without start-ups no bound beats Jackson's
    backward = windows.backward_ns * cost.unit
    push_end = _least_end(windows.heads, pushed, cost)
    least_ns = max(least_ns, cost.ns(backward + _least_end(windows.tails, pulled, cost)))
    for nested in widened(windows):
        tails = [min(tail, nested.tails[0]) for tail in windows.tails]
        pull_end = _least_end(tails, pulled, cost)
        apart = cost.ns(max(push_end, backward) + pull_end)
        if apart > least_ns:
            search = _Search(nested, pushed, pulled, cost, backward, pull_end)
            least_ns = search.least(least_ns, apart)
    return least_ns


def _least_end(moments: Sequence[int], sizes: Sequence[int], cost: UnitCost) -> int:
    """Return `least_end` of moments in ns, in any order."""
    order = sorted(range(len(moments)), key=lambda j: -moments[j])
    sent = cost.beyond(sizes[j] for j in order)
    return least_end([moments[j] * cost.unit for j in order], sent, cost.startup)


def least_end(moments: Sequence[int], sent: Sequence[int], startup: int) -> int:
    """Return when the transfers of one side end at best: the least max F_e, or G_m.

    Parameters
    ----------
    moments : sequence of int
        Heads or tails, none above the one before.
    sent : sequence of int
        Time for all bytes up to each of them.
    startup : int
        Start-up of a transfer.
    """
    low, high = 0, startup + sent[-1] + moments[0]
    while low < high:
        middle = (low + high) // 2
        if ends_by(middle, moments, sent, startup):
            high = middle
        else:
            low = middle + 1
    return high


def ends_by(end: int, moments: Sequence[int], sent: Sequence[int], startup: int) -> bool:
    """Return whether the transfers of one side can end by then."""
    startups, place = 0, 0
    while place < len(sent):
        startups += startup
        place, before = bisect_right(sent, end - startups - moments[place]), place
        if place <= before:
            return False
    return True


class _State(NamedTuple):
    """What is open; less of each is better. Stages go from one opening to the next."""

    pushes: int
    pulls: int
    head: int  # of the last left push
    tail: int  # of the last right pull
    no_right_pull: bool
    no_right_push: bool
    limit: int  # least of α·|B_m| + v_m + t_m when the last right push was opened
    least: int  # the same up to the stage before


class _Search:
    """Which targets can be reached by plans with a right push."""

    def __init__(
        self,
        nested: Nested,
        pushed: Sequence[int],
        pulled: Sequence[int],
        cost: UnitCost,
        backward: int,
        pull_end: int,
    ) -> None:
        self._unit, self._startup = cost.unit, cost.startup
        self._heads = [head * self._unit for head in nested.heads]
        self._tails = [tail * self._unit for tail in nested.tails]

        self._push, self._pull = (
            cost.beyond(sum(sizes[j] for j in own) for own in nested.members)
            for sizes in (pushed, pulled)
        )
        self._both = list(map(add, self._push, self._pull))
        self._due = list(map(add, self._pull, self._tails))
        self._backward, self._pull_end = backward, pull_end
        self._left = STATES

    def least(self, low: int, high: int) -> int:
        """Return a bound between two; none of such plans is shorter than it, if below `high`."""
        if not self._reached(high - 1):
            return high
        high -= 1  # reached, or not known
        while high - low > max(1, high >> PRECISION):
            middle = (low + high) // 2
            if self._left > 0 and not self._reached(middle):
                low = middle + 1
            else:
                high = middle
        return low

    def _reached(self, target: int) -> bool:
        """Return whether a target in ns is reached with any X."""
        end = target * self._unit
        low = max(self._backward, self._startup + self._push[0] + self._heads[0])
        high = end - self._pull_end
        ends = [low + (high - low) * place // INTERVALS for place in range(INTERVALS + 1)]
        return low <= high and any(self._fits(end, *interval) for interval in pairwise(ends))

    def _covered(self, end: int, low: int, high: int, state: _State) -> int:
        """Return how many windows, from the innermost on, fit: conditions 2, 3 and 4."""
        pushes = self._startup * state.pushes + state.head
        pulls = self._startup * state.pulls + state.tail
        return min(
            bisect_right(self._both, end - pushes - pulls),
            bisect_right(self._push, (high if state.no_right_push else end - state.limit) - pushes),
            bisect_right(self._pull, end - low - pulls),
        )

    def _fits(self, end: int, low: int, high: int) -> bool:
        """Return whether all windows fit with X in an interval, as far as the states go."""
        count = len(self._both)
        start = _State(1, 1, self._heads[0], self._tails[0], True, True, 0, end + 1)
        covered = self._covered(end, low, high, start)
        waiting = [(-covered, start, 1)] if covered else []  # nothing of index 0 is left or right
        seen: list[tuple[int, _State]] = []
        while waiting:
            behind, state, stage = heappop(waiting)
            window = -behind
            self._left -= 1
            if self._left <= 0 or (window == count and not state.no_right_push):
                return True
            place = min(window, count - 1)  # if a right push is missing, it is opened at the last
            state = self._grown(state, stage, place)
            enough: list[int] = []
            for opened in OPENINGS:
                if window == count and not opened & RIGHT_PUSH:
                    continue
                if any(subset & opened == subset for subset in enough):
                    continue
                new = self._with(state, opened, place)
                if new is None:
                    continue
                covered = self._covered(end, low, high, new)
                if covered <= place:
                    continue
                if window == count:
                    return True
                enough.append(opened)
                if any(_no_worse(earlier, (covered, new)) for earlier in seen):
                    continue
                seen = [earlier for earlier in seen if not _no_worse((covered, new), earlier)]
                seen.append((covered, new))
                heappush(waiting, (-covered, new, window))
        return False

    def _grown(self, state: _State, stage: int, place: int) -> _State:
        """Return the state at the end of its stage, which is from one window up to another."""
        due = min(self._due[stage:place], default=state.least)
        return state._replace(least=min(state.least, self._startup * state.pulls + due))

    def _with(self, state: _State, opened: int, place: int) -> _State | None:
        """Return the state with more opened at a window, None if it cannot be."""
        left_push, right_pull, right_push = (
            bool(opened & kind) for kind in (LEFT_PUSH, RIGHT_PULL, RIGHT_PUSH)
        )
        if right_push and state.no_right_pull and not right_pull:
            return None
        pulls, limit = state.pulls + right_pull, state.limit
        if right_push:
            limit = min(state.least, self._startup * pulls + self._due[place])
        return _State(
            state.pushes + left_push + right_push,
            pulls,
            self._heads[place] if left_push else state.head,
            self._tails[place] if right_pull else state.tail,
            state.no_right_pull and not right_pull,
            state.no_right_push and not right_push,
            limit,
            state.least,
        )


def _no_worse(first: tuple[int, _State], second: tuple[int, _State]) -> bool:
    """Return whether one state reaches as far as another with no more of anything."""
    return first[0] >= second[0] and all(a <= b for a, b in zip(first[1], second[1], strict=True))
