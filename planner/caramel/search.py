"""The best plan found for one op order: construct, descend, prove.

Problem: what to send together, in which order and in which pieces, for any windows and any cost.

Starts: groups of nested windows for each supporting line of the cost (`nested`), the pieces of
Jackson's preemptive schedule and priority batches of several sizes (`dispatch`), and what every
other method sends, without its barrier; for concave costs, if these are not near the bound, groups
that know what their sizes cost (`inwards`). The transfers of the best ones are ordered by Carlier's
branch and bound (`carlier`) and improved by local search (`descent`). If the best is not near the
bound, its sizes are searched (`resizing`). Where a bound is met the search ends.

Guarantee: at most what any start costs. For an affine cost and nested windows, so for every chain,
the bound up to rounding.

Complexity: O(lines · states · log) for the starts, and a fixed budget of prices for the descent.
Source: own.
"""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from planner.caramel.bounds import NEAR, concave_bounds
from planner.caramel.carlier import carlier
from planner.caramel.descent import descend
from planner.caramel.dispatch import preemptive_pieces, priority_batches
from planner.caramel.loads import Load, LoadPricer
from planner.caramel.nested import Targets, tightened, widened
from planner.caramel.network import batching_threshold
from planner.costs import TransferCost
from planner.deadline import Deadline

__all__ = ["best_loads"]

BUDGET = 4000
"""Prices each descent computes at most, fewer with more than WORK / BUDGET parameters."""

WORK = 2 * 10**6
"""Parts each descent looks at, about."""

DESCENTS = 3
"""Starts improved."""

SLACKS = (5, 10, 20, 40)
"""Per mille above the least target of a concave cost, which its groups may miss, also tried."""

ROUNDING = 10**7
"""A plan as near to the target, relatively, differs from it by rounding: no search is worth it."""

TRANSFERS, TRANSFERS_EACH = 10_000, 50
"""Transfers the search over sizes simulates: in all, and at most so many for each parameter."""

NODES = 64
"""Nodes of the branch and bound that orders the transfers of a start."""


class _Found(NamedTuple):
    """Loads, and how they rank (see `LoadPricer.rank`): priced once."""

    rank: tuple[int, int, int]
    loads: list[Load]

    @property
    def value(self) -> int:
        return self.rank[0]


_RANK = itemgetter(0)


def best_loads(
    pricer: LoadPricer,
    cost: TransferCost,
    target: int,
    others: Iterable[list[Load]],
    element_bytes: int,
    deadline: Deadline,
    effort: int = 1,
) -> list[Load]:
    """Return the best loads found, in transfer order.

    Parameters
    ----------
    pricer : LoadPricer
        The windows and their prices.
    cost : TransferCost
        The same cost, for its lines.
    target : int
        A lower bound; loads that meet it end the search.
    others : iterable of list of Load
        Further starts.
    element_bytes : int
        Parameters are cut at multiples of so many bytes.
    deadline : Deadline
        When to stop.
    effort : int
        How many times as long as usual to search.
    """
    best: _Found | None = None
    seen: list[_Found] = []
    budget = effort * min(BUDGET, max(WORK // len(pricer.windows.sizes), 1))

    def priced(loads: list[Load]) -> _Found:
        return _Found(pricer.rank(loads), loads)

    def improved(before: _Found) -> _Found:
        changed = descend(pricer, before.loads, target, budget, deadline)
        return before if changed == before.loads else priced(changed)

    # What the further starts add never takes away from what is found without them.
    for starts in (_starts(pricer, cost, target, element_bytes), others):
        tried = []
        for loads in starts:
            tried.append(priced(loads))
            if deadline.passed:
                break
        seen += tried
        for start in sorted(tried, key=_RANK)[: DESCENTS * effort]:
            if best is None or start.rank < best.rank:
                best = start
            if best.value <= target + target // ROUNDING or deadline.passed:
                break
            ordered = priced(_best_order(pricer, start.loads, NODES * effort, deadline))
            seen += [ordered, improved(ordered)]
            best = min(best, *seen[-2:], key=_RANK)
    assert best is not None
    for loads in _by_size(pricer, cost, element_bytes):
        if best.value <= target + target // NEAR or deadline.passed:
            break
        start = priced(loads)
        best = min(best, start, improved(start), key=_RANK)
    if best.value <= target + target // NEAR or deadline.passed:
        return _most_robust(pricer, best, seen)
    transfers = effort * min(TRANSFERS, TRANSFERS_EACH * len(pricer.windows.sizes))
    from planner.caramel.resizing import resize  # imports NumPy

    resized = resize(pricer, best.loads, target, transfers, element_bytes, deadline)
    return _most_robust(pricer, min(best, improved(priced(resized)), key=_RANK), seen)


def _most_robust(pricer: LoadPricer, best: _Found, seen: list[_Found]) -> list[Load]:
    """Return the best loads, or others as good that are more robust."""
    equal = [other.loads for other in seen if other.value == best.value]
    return min([best.loads, *equal], key=pricer.strained)


def _by_size(pricer: LoadPricer, cost: TransferCost, element_bytes: int) -> Iterator[list[Load]]:
    """Yield loads for each concave cost that know what their sizes cost."""
    for lines in concave_bounds(cost, sum(pricer.windows.sizes)):
        if len(lines) > 1:
            from planner.caramel.inwards import concave_loads  # imports NumPy

            for nested in tightened(pricer.windows):
                yield concave_loads(nested, lines, element_bytes)


def _best_order(
    pricer: LoadPricer, loads: list[Load], nodes: int, deadline: Deadline
) -> list[Load]:
    """Return the same transfers in the best order, or the best found in so many nodes or fewer."""
    nodes = pricer.looks(nodes, loads)
    if not nodes:
        return loads
    heads, tails = pricer.windows.heads, pricer.windows.tails
    ordered = carlier(
        [max(heads[j] for j, _ in load) for load in loads],
        [pricer.cost_ns(sum(size for _, size in load)) for load in loads],
        [max(tails[j] for j, _ in load) for load in loads],
        deadline,
        nodes,
    )
    return [loads[place] for place in ordered.order]


def _starts(
    pricer: LoadPricer, cost: TransferCost, target: int, element_bytes: int
) -> Iterator[list[Load]]:
    total = sum(pricer.windows.sizes)
    for nested in dict.fromkeys((*tightened(pricer.windows), *widened(pricer.windows))):
        for lines in concave_bounds(cost, total):
            targets = Targets(nested, lines)
            least, openings = targets.least(target)
            yield targets.whole_loads(openings)
            yield targets.cut_loads(least, openings, element_bytes)
            for slack in SLACKS if len(lines) > 1 else ():
                raised, openings = targets.least(least + least * slack // 1000)
                yield targets.whole_loads(openings)
                yield targets.cut_loads(raised, openings, element_bytes)
    yield preemptive_pieces(pricer.windows, cost, element_bytes)
    unit = batching_threshold(cost) or total
    limits = {min(total, max(1, (unit << 5) >> power)) for power in range(8)} | {total}
    # Where a measured cost falls with the size, the best size has nothing to do with the threshold.
    ends = {end for piece in cost.pieces() for end in (piece.start, piece.stop) if end}
    limits.add(min((end for end in {*ends, total} if end <= total), key=pricer.rate))
    for limit in sorted(limits):
        if total // limit <= pricer.many:
            yield priority_batches(pricer, limit, element_bytes)
