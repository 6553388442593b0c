"""The best plan found for one op order: construct, improve, prove; and warm starts.

Problem: group, order and cut transfers for any windows and any cost.
Method: starts are groups of nested windows for each supporting line (`Targets`), list schedules,
the plans of the baselines without barriers, and for concave costs those of `concave_loads`. The
best starts are ordered by Carlier's branch and bound (`carlier`) and improved by local search
(`descent`), then by `transfer_sizes`. The search ends when a plan meets the bound.
Guarantee: never worse than any start. For an affine cost and nested windows, so for every chain,
the bound up to rounding.
Complexity: O(lines · states · log n) for the starts, and a fixed budget of prices.
Source: own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product, repeat
from operator import itemgetter
from typing import NamedTuple

from planner.families.caramel.bounds import (
    NEAR,
    Targets,
    concave_bounds,
    inner_nesting,
    outer_nesting,
)
from planner.families.caramel.carlier import carlier
from planner.families.caramel.descent import descend
from planner.families.caramel.one_machine import list_schedule
from planner.families.caramel.paper import batching_threshold
from planner.families.caramel.pricing import Load, LoadPricer, is_free, loads_of, plan_of
from planner.families.caramel.problem import Plan, Problem
from planner.families.caramel.windows import windows
from planner.model.costs import AffineCost, TransferCost
from planner.model.errors import InvalidPlanError
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome
from planner.solving.transfers import Part

BUDGET = 4000
"""Prices per descent at most, fewer with more than WORK / BUDGET parameters."""

WORK = 2 * 10**6
"""Parts examined per descent, about."""

DESCENTS = 3
"""Number of starts that are improved."""

ROUNDING = 10**7
"""A plan within 1/ROUNDING of the target differs only by rounding, so the search stops."""

TRANSFERS, TRANSFERS_EACH = 10_000, 50
"""Transfers simulated by the search over sizes: in all, and per parameter, at most."""


NODES = 64
"""Branch-and-bound nodes for ordering the transfers of one start."""


BY_TABLE = 400
"""Largest number of parameters for which the plan of the table itself is a start: improving it
takes long."""


class _Found(NamedTuple):
    """Loads with their rank (`LoadPricer.rank`), so that they are priced once."""

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

    `target` is a lower bound; loads that meet it end the search. `others` are further starts.
    `effort` multiplies all budgets.
    """
    best: _Found | None = None
    seen: list[_Found] = []
    budget = effort * min(BUDGET, max(WORK // len(pricer.windows.sizes), 1))
    transfers = effort * min(TRANSFERS, TRANSFERS_EACH * len(pricer.windows.sizes))

    def priced(loads: list[Load]) -> _Found:
        return _Found(pricer.rank(loads), loads)

    def improved(before: _Found) -> _Found:
        changed = descend(pricer, before.loads, target, budget, deadline)
        return before if changed == before.loads else priced(changed)

    def enough(least: _Found, near: int) -> bool:
        return least.value <= target + target // near or deadline.passed

    # The search from the own starts ends first, so that `others` never worsen the result.
    own = _starts(pricer, cost, target, element_bytes), _by_size(pricer, cost, element_bytes)
    for starts, more in (own, (others, ())):
        before, tried = best, []
        for loads in starts:
            tried.append(priced(loads))
            if deadline.passed:
                break
        seen += tried
        for start in sorted(tried, key=_RANK)[: DESCENTS * effort]:
            if best is None or start.rank < best.rank:
                best = start
            if enough(best, ROUNDING):
                break
            ordered = priced(_best_order(pricer, start.loads, NODES * effort, deadline))
            seen += [ordered, improved(ordered)]
            best = min(best, *seen[-2:], key=_RANK)
        assert best is not None
        for loads in more:
            if enough(best, NEAR):
                break
            start = priced(loads)
            best = min(best, start, improved(start), key=_RANK)
        if best is not before and not enough(best, NEAR):
            from planner.families.caramel.transfer_sizes import resize  # imports NumPy

            resized = resize(pricer, best.loads, target, transfers, element_bytes, deadline)
            best = min(best, improved(priced(resized)), key=_RANK)
    assert best is not None
    return _most_robust(pricer, best, seen)


def _most_robust(pricer: LoadPricer, best: _Found, seen: list[_Found]) -> list[Load]:
    """Return the least delay-sensitive of the best loads and other loads of equal value."""
    equal = [other.loads for other in seen if other.value == best.value]
    return min([best.loads, *equal], key=pricer.delayed_makespans)


def _by_size(pricer: LoadPricer, cost: TransferCost, element_bytes: int) -> Iterator[list[Load]]:
    """Yield loads that price every transfer by its own size, if costs are not affine."""
    total = sum(pricer.windows.sizes)
    if isinstance(cost, AffineCost):
        return
    from planner.families.caramel.grid_bounds import concave_loads  # imports NumPy
    from planner.families.caramel.grid_costs import GridCost

    known = [
        GridCost.of_lines(lines, total) for lines in concave_bounds(cost, total) if len(lines) > 1
    ]
    nests = inner_nesting(pricer.windows)
    for priced in known:
        yield from (concave_loads(nested, priced, element_bytes) for nested in nests)
    if not known and len(pricer.windows.sizes) <= BY_TABLE:
        measured = GridCost.of_cost(cost, total)
        loads = [concave_loads(nested, measured, element_bytes) for nested in nests]
        yield min(loads, key=pricer.rank)  # one is enough: each is improved


def _best_order(
    pricer: LoadPricer, loads: list[Load], nodes: int, deadline: Deadline
) -> list[Load]:
    """Return the same transfers in the best order found within `nodes` branch-and-bound nodes."""
    nodes = pricer.looks(nodes, loads)
    if not nodes:
        return loads
    heads, durations, tails = zip(*pricer.steps(loads), strict=True)
    ordered = carlier(heads, durations, tails, deadline, nodes)
    return [loads[place] for place in ordered.order]


def _starts(
    pricer: LoadPricer, cost: TransferCost, target: int, element_bytes: int
) -> Iterator[list[Load]]:
    total = sum(pricer.windows.sizes)
    for nested in dict.fromkeys((*inner_nesting(pricer.windows), *outer_nesting(pricer.windows))):
        for lines in concave_bounds(cost, total):
            yield from Targets(nested, lines).plans(target, element_bytes)
    unit = batching_threshold(cost) or total
    limits = {min(total, max(1, (unit << 5) >> power)) for power in range(8)} | {total}
    # If a measured cost falls with the size, the best size is unrelated to the threshold.
    ends = {end for piece in cost.pieces() for end in (piece.start, piece.stop) if end}
    sizes = (end for end in {*ends, total} if end <= total)
    limits.add(min(sizes, key=lambda size: Fraction(pricer.cost_ns(size), size)))
    for limit in sorted(limits):
        if total // limit <= pricer.many:
            yield list_schedule(pricer, repeat((limit, 0)), element_bytes)


# ---
# Warm start: adapt an old plan to changed numbers, within milliseconds.
#
# Problem: computation, network or sizes have changed since a plan was made. Find a nearly optimal
# plan without a full search. Method: parameters of another size are cut at the same shares, rounded
# to elements. If all workers keep to the plan's op order, groups for nested windows compete with
# the old transfers, and local search improves the better plan. Other plans and plans with a barrier
# only change sizes. Guarantee: never worse than the old transfers in the old order. Complexity:
# O(lines · states · log n), and `REFITTED` transfers priced. Source: own.

REFITTED = 20_000
"""Transfers and parts examined by the local search, about."""


def adapt(problem: Problem, plan: Plan) -> Plan:
    """Adapt an old plan to the sizes of the problem's parameters.

    Raises `InvalidPlanError` if the plan sends bytes that no parameter can have.
    """
    sizes = [parameter.size_bytes for parameter in problem.graph.parameters]
    parts = resized([group.parts for group in plan.groups], sizes, problem.element_bytes)
    groups = tuple(
        replace(group, parts=left) for group, left in zip(plan.groups, parts, strict=True) if left
    )
    return replace(plan, groups=groups)


def improved_start(problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
    """Return an adapted plan after a short local search."""
    if not is_free(problem, plan):
        return Outcome(plan)
    pricer = LoadPricer(windows(problem.graph, *plan.order), problem.cost)
    old = loads_of(plan)
    known, bound, best = pricer.windows, 0, old
    lines_of_all = concave_bounds(problem.cost, sum(known.sizes))
    for nested, lines in product(outer_nesting(known), lines_of_all):
        bound, _ = Targets(nested, lines).least(bound)
    for nested, lines in product(inner_nesting(known), lines_of_all):
        if pricer.iteration_ns(best) > bound:
            made = Targets(nested, lines).plans(bound, problem.element_bytes)
            best = min(best, *made, key=pricer.rank)
    if pricer.iteration_ns(best) > bound:
        budget = REFITTED // (len(best) + len(known.sizes))
        best = descend(pricer, best, bound, budget, deadline)
    if pricer.iteration_ns(best) < pricer.iteration_ns(old):
        plan = plan_of(problem, plan.order, best)
    return Outcome(plan, bound)


def resized(
    transfers: Sequence[tuple[Part, ...]], sizes: Sequence[int], element_bytes: int
) -> list[tuple[Part, ...]]:
    """Return the parts of transfers at the same shares of parameters that have other sizes.

    Parts may become empty, and so may transfers. Raises `InvalidPlanError` if a part names an
    unknown parameter, or if an old part is empty.
    """
    before: dict[int, int] = {}
    for place, parts in enumerate(transfers):
        for index, start, stop in parts:
            if not 0 <= index < len(sizes):
                raise InvalidPlanError(f"groups[{place}]", f"there is no parameter {index}")
            if not 0 <= start < stop:
                raise InvalidPlanError(f"groups[{place}]", f"[{start}, {stop}) are no bytes")
            before[index] = max(stop, before.get(index, 0))
    if all(sizes[index] == size for index, size in before.items()):
        return list(transfers)

    def moved(index: int, place: int) -> int:
        old, new = before[index], sizes[index]
        if old in (new, place):
            return new if old == place else place
        return place * new // old // element_bytes * element_bytes

    return [
        tuple(
            part
            for index, start, stop in parts
            if (part := Part(index, moved(index, start), moved(index, stop))).start < part.stop
        )
        for parts in transfers
    ]
