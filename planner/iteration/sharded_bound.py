"""A start-up-aware bound on sharded plans: pushes and pulls counted apart.

Problem: pushes leave once their gradients are ready, pulls end before the forward pass reads, each
byte is pushed before it is pulled, all on one channel, at α + β·bytes a transfer. Which iteration
M does no such plan undercut, however it cuts, groups and orders?

Windows are nested, the innermost first, with heads h and tails t that do not rise (those that are
not are widened, `planner.caramel.nested`). The *index* of a transfer is its innermost window. Of a
plan let A_e be the pushes of index ≤ e, with u_e time for their bytes, and B_m the pulls of index
≤ m, with v_m. A push of index p starts at h_p or later, a pull of index q ends at M - t_q or
earlier. A push that starts before h_0 is called *left*, and so is a pull; those that end after
M - t_0 are called *right*. A left pull has its push before it, so that the earliest of A_e and B_m
is a push; the latest is a pull. With x the largest index of a left push in A_e, y that of a right
pull in B_m, all of A_e and B_m lies between h_x and M - t_y, for e = m always, and for all e and m
as long as no pull is left and no push right. So with F_e = α·|A_e| + u_e + h_x and
G_m = α·|B_m| + v_m + t_y:

1. Without left pulls and right pushes M ≥ max F_e + max G_m, which is at least the least of the
   first plus the least of the second: iBatch both ways, up to cuts and rounding.
2. Always M ≥ F_m + G_m, start-ups of left pulls and right pushes included.
3. Let X be the most F_e of the indices below those of the right pushes. Then F_e ≤ X for these e,
   and G_m ≤ M - X for all m below the indices of the left pulls.
4. If l is the largest index of a left pull in B_m, all of A_l and B_m starts at h_l or later:
   α·(|A_l| + |B_m|) + u_l + v_m + h_l + t_y ≤ M; and the mirror image of it.

The bound is the lesser of 1 and of the least M that 2, 3 and 4 leave to plans with a left pull or
a right push. These are tried as in `planner.caramel.nested`: grow outwards from the innermost
window, and open a left push, a right pull, a left pull or a right push (the latter two need one of
the former) only at the first window that does not fit. A plan has opened no fewer by then, and
none later, so what is open here is never more, and reaches at least as far; in 4 the least of
α·|A_e| + u_e + h_e over all e up to the opening stands for an l that may come earlier. X is
divided into intervals; 3 is asked of the end that suits it.

Guarantee: no sharded plan of the windows lasts less. The bound can be below the best M by what a
transfer loses that would have to be interrupted, or because the search ran out of `STATES`.

Complexity: O(states² + states · log n) a target, O(log M) targets, at most `STATES` states in all.
Source: own; the growth as in `planner.caramel.nested`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from typing import NamedTuple

from planner.caramel.nested import Nested, widened
from planner.caramel.windows import Windows
from planner.costs import AffineCost

__all__ = ["ends_by", "least_end", "sharded_bound"]

STATES = 1500
"""States looked at in all for one set of nested windows; what is not proven by then is not said."""

INTERVALS = 4
"""Intervals of X, where a left pull or a right push is needed."""

PRECISION = 13
"""The bound is searched to a part in 2^13."""

LEFT_PUSH, RIGHT_PULL, LEFT_PULL, RIGHT_PUSH = 1, 2, 4, 8

OPENINGS = sorted(range(1, 16), key=lambda opened: (opened.bit_count(), opened))
"""Sets of what is opened at a window, the smaller ones first."""


def sharded_bound(
    windows: Windows, pushed: Sequence[int], pulled: Sequence[int], half: AffineCost, least_ns: int
) -> int:
    """Return a bound that is at least `least_ns`, which is another one.

    Parameters
    ----------
    windows : Windows
        Heads and tails; its sizes do not count.
    pushed, pulled : sequence of int
        Bytes of each gradient, and of each parameter.
    half : AffineCost
        What a push, or a pull, costs.
    least_ns : int
        A bound on the same plans.
    """
    if not half.startup_ns:
        return least_ns  # without start-ups no bound beats Jackson's
    unit, rate = half.ns_per_byte.denominator, half.ns_per_byte.numerator
    for nested in widened(windows):
        most_head, most_tail = nested.heads[0], nested.tails[0]
        ends = [
            least_end(
                *_sorted([min(moment, most) * unit for moment in moments], sizes, rate),
                half.startup_ns * unit,
            )
            for moments, most, sizes in (
                (windows.heads, most_head, pushed),
                (windows.tails, most_tail, pulled),
            )
        ]
        apart = -(-sum(ends) // unit)
        if apart > least_ns:
            search = _Search(nested, pushed, pulled, half, *ends)
            least_ns = search.least(least_ns, apart)
    return least_ns


def _sorted(moments: Sequence[int], sizes: Sequence[int], rate: int) -> tuple[list[int], list[int]]:
    """Return moments that do not rise, and the time for all bytes up to each of them."""
    order = sorted(range(len(moments)), key=lambda j: -moments[j])
    return [moments[j] for j in order], list(accumulate(rate * sizes[j] for j in order))


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
    no_left_push: bool
    no_right_pull: bool
    no_left_pull: bool
    no_right_push: bool
    push_limit: int  # least of α·|A_e| + u_e + h_e when the last left pull was opened
    pull_limit: int  # and its mirror image
    push_least: int  # the same up to the stage before
    pull_least: int


class _Search:
    """Which targets can be reached by plans with a left pull or a right push."""

    def __init__(
        self,
        nested: Nested,
        pushed: Sequence[int],
        pulled: Sequence[int],
        half: AffineCost,
        push_end: int,
        pull_end: int,
    ) -> None:
        self._unit, rate = half.ns_per_byte.denominator, half.ns_per_byte.numerator
        self._startup = half.startup_ns * self._unit
        self._heads = [head * self._unit for head in nested.heads]
        self._tails = [tail * self._unit for tail in nested.tails]

        def times(sizes: Sequence[int]) -> list[int]:
            return list(accumulate(rate * sum(sizes[j] for j in own) for own in nested.members))

        self._push, self._pull = times(pushed), times(pulled)
        self._both = [push + pull for push, pull in zip(self._push, self._pull, strict=True)]
        self._ready = [push + head for push, head in zip(self._push, self._heads, strict=True)]
        self._due = [pull + tail for pull, tail in zip(self._pull, self._tails, strict=True)]
        self._push_end, self._pull_end = push_end, pull_end
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
        first = self._startup + self._ready[0]
        last = end - self._startup - self._due[0]
        pushes, pulls = self._push_end, end - self._pull_end
        if last < first:
            return False
        # Where X is too short for all pushes one is right; too long for all pulls, one is left.
        cases = [
            *((*interval, True, False) for interval in _divided(pushes, last)),
            *((*interval, False, True) for interval in _divided(first, pulls)),
            *((*interval, True, True) for interval in [(max(first, pulls), min(pushes, last))]),
        ]
        return any(
            self._fits(end, low, high, left_pull=left, right_push=right)
            for low, high, left, right in cases
            if low <= high
        )

    def _covered(self, end: int, low: int, high: int, state: _State) -> int:
        """Return how many windows, from the innermost on, fit: conditions 2, 3 and 4."""
        pushes = self._startup * state.pushes + state.head
        pulls = self._startup * state.pulls + state.tail
        return min(
            bisect_right(self._both, end - pushes - pulls),
            bisect_right(
                self._push, (high if state.no_right_push else end - state.pull_limit) - pushes
            ),
            bisect_right(
                self._pull, end - (low if state.no_left_pull else state.push_limit) - pulls
            ),
        )

    def _fits(self, end: int, low: int, high: int, *, left_pull: bool, right_push: bool) -> bool:
        """Return whether all windows fit with X in an interval, as far as the states go."""
        count = len(self._both)
        nothing = end + 1
        start = _State(
            1, 1, self._heads[0], self._tails[0], True, True, True, True, 0, 0, nothing, nothing
        )  # fmt: skip
        covered = self._covered(end, low, high, start)
        waiting = [(-covered, start, 1)] if covered else []  # nothing of index 0 is left or right
        seen: list[tuple[int, _State]] = []
        while waiting:
            behind, state, stage = heappop(waiting)
            window = -behind
            self._left -= 1
            if self._left <= 0:
                return True
            missing = LEFT_PULL * (left_pull and state.no_left_pull)
            missing |= RIGHT_PUSH * (right_push and state.no_right_push)
            if window == count and not missing:
                return True
            place = min(window, count - 1)  # what a plan must have is opened at the last window
            state = self._grown(state, stage, place)
            enough: list[int] = []
            for opened in OPENINGS:
                if opened & missing != missing and window == count:
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
        ready, due = self._ready[stage:place], self._due[stage:place]
        if not ready:
            return state
        push_least = min(state.push_least, self._startup * state.pushes + min(ready))
        pull_least = min(state.pull_least, self._startup * state.pulls + min(due))
        return state._replace(push_least=push_least, pull_least=pull_least)

    def _with(self, state: _State, opened: int, place: int) -> _State | None:
        """Return the state with more opened at a window, None if it cannot be."""
        left_push, right_pull = bool(opened & LEFT_PUSH), bool(opened & RIGHT_PULL)
        left_pull, right_push = bool(opened & LEFT_PULL), bool(opened & RIGHT_PUSH)
        if left_pull and state.no_left_push and not left_push:
            return None
        if right_push and state.no_right_pull and not right_pull:
            return None
        pushes = state.pushes + left_push + right_push
        pulls = state.pulls + right_pull + left_pull
        push_limit, pull_limit = state.push_limit, state.pull_limit
        if left_pull:
            push_limit = min(state.push_least, self._startup * pushes + self._ready[place])
        if right_push:
            pull_limit = min(state.pull_least, self._startup * pulls + self._due[place])
        return _State(
            pushes,
            pulls,
            self._heads[place] if left_push else state.head,
            self._tails[place] if right_pull else state.tail,
            state.no_left_push and not left_push,
            state.no_right_pull and not right_pull,
            state.no_left_pull and not left_pull,
            state.no_right_push and not right_push,
            push_limit,
            pull_limit,
            state.push_least,
            state.pull_least,
        )


def _divided(low: int, high: int) -> Iterable[tuple[int, int]]:
    """Return intervals that cover one; none if it is empty."""
    if low > high:
        return ()
    ends = [low + (high - low) * place // INTERVALS for place in range(INTERVALS + 1)]
    return pairwise(ends)


def _no_worse(first: tuple[int, _State], second: tuple[int, _State]) -> bool:
    """Return whether one state reaches as far as another with no more of anything."""
    return first[0] >= second[0] and all(a <= b for a, b in zip(first[1], second[1], strict=True))
