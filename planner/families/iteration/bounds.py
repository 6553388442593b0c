"""Lower bounds on the iteration of every plan, for one op order.

Problem: bound the iteration under one synchronisation algorithm, however gradients are cut, grouped
and ordered. Method: the largest of several bounds. Replicated plans:
`planner.families.caramel.bounds`. Sharded plans: the same on all pushes and pulls together, and
`sharded_bound`. `tightened_bound` adds bounds for concave costs and tables. Proofs:
docs/iteration.md, "Why the bounds hold". Guarantee: no plan of the mode and the op order lasts
less; with the cost of `synchronisation.least`, no plan by any algorithm does. Contention leaves the
bounds valid. Complexity: that of `planner.families.caramel.bounds` and of the sharded bound.
Source: own.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import pairwise
from math import ceil
from operator import add
from typing import NamedTuple

from planner.families.caramel.bounds import NEAR, Nested, UnitCost, lower_bound, outer_nesting
from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.windows import Windows, windows
from planner.families.iteration.evaluation import heads_of
from planner.families.iteration.plan import Mode, Plan, Way, bounding_lines, lines_of
from planner.families.iteration.problem import Problem
from planner.families.iteration.synchronisation import least
from planner.model.contention import contention_bound
from planner.model.costs import AffineCost, DepthCost, Line, TransferCost
from planner.solving.bucketing import earliest_end


def bound(
    problem: Problem,
    synchronisation: Way,
    mode: Mode,
    plan: Plan | None = None,
    *,
    brief: bool = False,
) -> int:
    """Return the lower bound over all plans of one mode, in ns.

    Parameters
    ----------
    problem : Problem
        The problem.
    synchronisation : Way
        Cost of transfers.
    mode : {"replicated", "sharded"}
        The mode of the plans.
    plan : Plan, optional
        Plan with the op orders to use; by default the problem's.
    brief : bool
        Leave out bounds that take a search: weaker if start-ups count.
    """
    known = _windows(problem, plan)
    pushed, pulled = problem.pushed, problem.pulled
    cost: TransferCost = synchronisation.all_reduce
    alone = 0
    kind = "all_reduce" if mode == "replicated" else "push"
    minorants = bounding_lines(synchronisation, kind, max(sum(pushed), sum(pulled)))
    if mode == "sharded":
        cost = synchronisation.halves
        half = _uncut(cost, minorants)
        ended = known.backward_ns
        alone = max(
            max(head + half(push), ended) + half(pull) + tail
            for head, push, pull, tail in zip(known.heads, pushed, pulled, known.tails, strict=True)
        )
        both = replace(known, sizes=tuple(map(add, pushed, pulled)))
        pulls = (ended,) * len(pulled)
        known = replace(
            known, sizes=pushed + pulled, heads=known.heads + pulls, tails=known.tails * 2
        )
    least_ns = max(alone, preemptive_bound(known, cost) if brief else lower_bound(known, cost))
    least_ns = max(least_ns, _contention_bound(problem, mode, cost, known))
    if brief:
        return least_ns
    if mode == "sharded":
        for lines in minorants:
            least_ns = sharded_bound(both, pushed, pulled, lines, least_ns)
    room = problem.transfer_limit(mode)
    if room is None or not 0 < room < sum(known.sizes):
        return least_ns
    rate = max(min(rate + startup / room for startup, rate in lines) for lines in minorants)
    return max(least_ns, lower_bound(known, AffineCost(0, rate)))


def _uncut(cost: TransferCost, minorants: Sequence[Sequence[Line]]) -> Callable[[int], int]:
    """Return a function: the least cost of some bytes in any number of transfers of one kind."""
    if isinstance(cost, AffineCost) or (isinstance(cost, DepthCost) and cost.is_concave):
        return cost.cost_ns
    return lambda size: max(
        ceil(min(startup + rate * size for startup, rate in lines)) for lines in minorants
    )


def _contention_bound(problem: Problem, mode: Mode, cost: TransferCost, known: Windows) -> int:
    """Return the bound under contention, for the windows of all transfers."""
    if problem.interference.is_none:
        return 0
    contention = problem.contention("all_reduce" if mode == "replicated" else "push")
    apart = min(known.heads) + min(known.tails)
    return contention_bound(contention, known.compute_ns, apart, cost, known.sizes)


def tightened_bound(
    problem: Problem,
    synchronisation: Way,
    mode: Mode,
    least_ns: int,
    plan_ns: int,
    plan: Plan | None = None,
) -> int:
    """Return a bound of at least `least_ns`, stronger if costs are not affine.

    `least_ns` is the result of `bound`, `plan_ns` the value of some plan. If `plan_ns` is near the
    bound, or costs are affine, `least_ns` is returned.
    """
    cost = synchronisation.all_reduce if mode == "replicated" else synchronisation.halves
    if isinstance(cost, AffineCost) or plan_ns <= least_ns + least_ns // NEAR:
        return least_ns
    # Imports NumPy.
    from planner.families.caramel.byte_bound import byte_bound
    from planner.families.caramel.grid_bounds import concave_bound
    from planner.families.caramel.grid_costs import GridCost
    from planner.families.caramel.table_bound import ENOUGH, table_bound
    from planner.families.iteration.pushes_in_forward_bound import right_pushes_bound

    known = _windows(problem, plan)
    if mode == "sharded":
        largest = max(sum(problem.pushed), sum(problem.pulled))
        push = GridCost.of_cost(synchronisation.half, largest)
        pull = GridCost.of_cost(synchronisation.pull, largest)
        costs = push, pull
        made = right_pushes_bound(known, problem.pushed, problem.pulled, costs, plan_ns)
    elif isinstance(cost, DepthCost) and cost.is_concave:
        made = concave_bound(known, lines_of(synchronisation, "all_reduce"))
    else:
        priced = GridCost.of_cost(cost, sum(known.sizes))
        made = table_bound(known, priced, plan_ns)
        # If computation takes longer than transfers, moments count more than bytes.
        long = priced.rate * sum(known.sizes) > known.compute_ns
        if long and plan_ns > made + made // ENOUGH:
            made = max(made, byte_bound(known, priced))
    return max(least_ns, made)


def _windows(problem: Problem, plan: Plan | None) -> Windows:
    """Return the windows under a plan's op orders, or the problem's."""
    if plan is None:
        return problem.base.windows
    known = windows(problem.graph, plan.backward_orders[0], plan.forward_order)
    return replace(known, heads=heads_of(problem, plan))


def network_bound(problem: Problem, plan: Plan) -> int:
    """Return the lower bound over all algorithms, for a plan's op orders (ns)."""
    cheapest = least(problem.cluster)
    return min(bound(problem, cheapest, mode, plan) for mode in ("replicated", "sharded"))


# ---
# A start-up-aware lower bound on sharded plans that counts pushes and pulls separately.
#
# Problem: pushes start once their gradients are ready, pulls end before the forward pass reads, and
# each byte is pushed before it is pulled, on one channel. A transfer costs the minimum of some
# lines α + β·bytes. Method: four conditions on the transfers of nested windows, tested by growing
# outwards as `planner.families.caramel.bounds.Targets` does. Derivation: docs/iteration.md, "Why
# the sharded bound holds". Guarantee: no sharded plan of the windows lasts less. The bound may miss
# the optimum by the cost of an interruption, or for lack of `STATES`. Complexity: O(states² +
# states · log n) per target, O(log M) targets; `STATES` states in all.

STATES = 1500
"""States examined for one set of nested windows; targets not refuted by then count as reachable."""

INTERVALS = 4
"""Number of intervals of X."""

PRECISION = 13
"""The bound is searched to one part in 2^13."""

LEFT_PUSH, RIGHT_PULL, RIGHT_PUSH = 1, 2, 4

OPENINGS = sorted(range(1, 8), key=lambda opened: (opened.bit_count(), opened))
"""Sets of transfers opened at a window, the smaller ones first."""


def sharded_bound(
    windows: Windows,
    pushed: Sequence[int],
    pulled: Sequence[int],
    lines: Sequence[Line],
    least_ns: int,
) -> int:
    """Return the lower bound over all sharded plans (ns), at least `least_ns`.

    A push, or a pull, costs the minimum of `lines`. The sizes in `windows` are not used.
    """
    cost = UnitCost(lines)
    if len(lines) == 1 and not cost.startup:
        return least_ns  # without start-ups no bound beats Jackson's
    backward = windows.backward_ns * cost.unit
    push_end = _least_end(windows.heads, pushed, cost)
    least_ns = max(least_ns, cost.ns(backward + _least_end(windows.tails, pulled, cost)))
    for nested in outer_nesting(windows):
        tails = [min(tail, nested.tails[0]) for tail in windows.tails]
        pull_end = _least_end(tails, pulled, cost)
        apart = cost.ns(max(push_end, backward) + pull_end)
        if apart > least_ns:
            search = _Search(nested, pushed, pulled, cost, backward, pull_end)
            least_ns = search.least(least_ns, apart)
    return least_ns


def _least_end(moments: Sequence[int], sizes: Sequence[int], cost: UnitCost) -> int:
    """Return the earliest end of the transfers of one side: the least max F_e, or G_m."""
    order = sorted(range(len(moments)), key=lambda j: -moments[j])
    sent = cost.beyond(sizes[j] for j in order)
    return earliest_end([moments[j] * cost.unit for j in order], sent, cost.startup)


class _State(NamedTuple):
    """Open transfers; less of each is better. A stage goes from one opening to the next."""

    pushes: int
    pulls: int
    head: int  # of the last left push
    tail: int  # of the last right pull
    no_right_pull: bool
    no_right_push: bool
    limit: int  # least of α·|B_m| + v_m + t_m when the last right push was opened
    least: int  # the same up to the stage before


class _Search:
    """Decides which targets plans with a right push can reach."""

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
        """Return a bound between `low` and `high` on the plans with a right push."""
        if not self._reached(high - 1):
            return high
        high -= 1  # reached, or unknown
        while high - low > max(1, high >> PRECISION):
            middle = (low + high) // 2
            if self._left > 0 and not self._reached(middle):
                low = middle + 1
            else:
                high = middle
        return low

    def _reached(self, target: int) -> bool:
        """Return whether a target (ns) is reached with any X."""
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
        """Return whether all windows may fit with X in an interval."""
        count = len(self._both)
        start = _State(1, 1, self._heads[0], self._tails[0], True, True, 0, end + 1)
        covered = self._covered(end, low, high, start)
        waiting = [(-covered, start, 1)] if covered else []  # none of index 0 is left or right
        seen: list[tuple[int, _State]] = []
        while waiting:
            behind, state, stage = heappop(waiting)
            window = -behind
            self._left -= 1
            if self._left <= 0 or (window == count and not state.no_right_push):
                return True
            place = min(window, count - 1)  # a missing right push opens at the last
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
        """Return the state at the end of its stage, which goes from one window to another."""
        due = min(self._due[stage:place], default=state.least)
        return state._replace(least=min(state.least, self._startup * state.pulls + due))

    def _with(self, state: _State, opened: int, place: int) -> _State | None:
        """Return the state after opening transfers at a window, or None if that is impossible."""
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
    """Return whether a state reaches as far as another, and no field of it is larger."""
    return first[0] >= second[0] and all(a <= b for a, b in zip(first[1], second[1], strict=True))
