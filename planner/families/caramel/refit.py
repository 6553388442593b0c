"""Warm start: adapt an old plan to changed numbers, within milliseconds.

Problem: computation, network or sizes have changed since a plan was made. Find a nearly optimal
plan without a full search. Method: parameters of another size are cut at the same shares, rounded
to elements. If all workers keep to the plan's op order, groups for nested windows
(`planner.families.caramel.nested_windows`) compete with the old transfers, and local search
(`planner.families.caramel.descent`) improves the better. Other plans, and plans with a barrier,
only change sizes. Guarantee: never worse than the old transfers in the old order. Complexity:
O(lines · states · log n), and `WORK` transfers priced. Source: own.
"""

from collections.abc import Sequence
from dataclasses import replace

from planner.families.caramel.bounds import concave_bounds
from planner.families.caramel.descent import descend
from planner.families.caramel.nested_windows import Targets, tightened, widened
from planner.families.caramel.pricing import Load, LoadPricer, is_free, loads_of, plan_of
from planner.families.caramel.problem import Plan, Problem
from planner.families.caramel.windows import windows
from planner.model.costs import TransferCost
from planner.model.errors import InvalidPlanError
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome
from planner.solving.transfers import Part

WORK = 20_000
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


def refit(problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
    """Return an adapted plan, improved."""
    if not is_free(problem, plan):
        return Outcome(plan)
    pricer = LoadPricer(windows(problem.graph, *plan.order), problem.cost)
    old = loads_of(plan)
    loads, bound = improved(pricer, old, problem.cost, problem.element_bytes, deadline)
    if pricer.iteration_ns(loads) < pricer.iteration_ns(old):
        plan = plan_of(problem, plan.order, loads)
    return Outcome(plan, bound)


def improved(
    pricer: LoadPricer,
    loads: list[Load],
    cost: TransferCost,
    element_bytes: int,
    deadline: Deadline,
) -> tuple[list[Load], int]:
    """Return the best loads made from old loads or anew, and a lower bound (ns)."""
    known, bound = pricer.windows, 0
    lines_of_all = concave_bounds(cost, sum(known.sizes))
    for nested in widened(known):
        for lines in lines_of_all:
            bound, _ = Targets(nested, lines).least(bound)
    best = loads
    for nested in tightened(known):
        for lines in lines_of_all:
            if pricer.iteration_ns(best) <= bound:
                return best, bound
            targets = Targets(nested, lines)
            least, openings = targets.least(bound)
            made = targets.whole_loads(openings), targets.cut_loads(least, openings, element_bytes)
            best = min(best, *made, key=pricer.rank)
    budget = WORK // (len(best) + len(known.sizes))
    return descend(pricer, best, bound, budget, deadline), bound


def resized(
    transfers: Sequence[tuple[Part, ...]], sizes: Sequence[int], element_bytes: int
) -> list[tuple[Part, ...]]:
    """Return the parts of transfers at the same shares of parameters that have other sizes.

    Parts may become empty, and so may transfers. Raises `InvalidPlanError` if there is no such
    parameter, or an old part is empty.
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
