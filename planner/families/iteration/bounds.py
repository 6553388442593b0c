"""Lower bounds on the iteration of every plan, for one op order.

Problem: bound the iteration under one synchronisation algorithm, however gradients are cut, grouped
and ordered. Method: the largest of several bounds. Replicated plans:
`planner.families.caramel.bounds`. Sharded plans: the same on all pushes and pulls together, and
`sharded_bound`. `raised` adds bounds for concave costs. Proofs: docs/iteration.md, "Why the bounds
hold". Guarantee: no plan of the mode and the op order lasts less; by the cost of
`synchronisation.least`, none by any algorithm. Contention leaves the bounds valid. Complexity: that
of `planner.families.caramel.bounds` and `planner.families.iteration.sharded_bound`. Source: own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, floor
from operator import add

from planner.families.caramel.bounds import NEAR, Targets, lower_bound, widened
from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.windows import Windows, windows
from planner.families.iteration.evaluation import heads_of
from planner.families.iteration.plan import Mode, Plan, Way, bounding_lines, lines_of
from planner.families.iteration.problem import Problem
from planner.families.iteration.sharded_bound import sharded_bound
from planner.families.iteration.synchronisation import least
from planner.model.contention import bound_beside
from planner.model.costs import AffineCost, DepthCost, Line, TransferCost


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
    least_ns = max(least_ns, _beside(problem, mode, cost, known))
    if brief:
        return least_ns
    if mode == "sharded":
        for lines in minorants:
            least_ns = _with_both_halves(both, lines, least_ns)
            least_ns = sharded_bound(both, pushed, pulled, lines, least_ns)
    room = problem.room(mode)
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


def _beside(problem: Problem, mode: Mode, cost: TransferCost, known: Windows) -> int:
    """Return the bound under contention, for the windows of all transfers."""
    if problem.interference.is_none:
        return 0
    beside = problem.beside("all_reduce" if mode == "replicated" else "push")
    apart = min(known.heads) + min(known.tails)
    return bound_beside(beside, known.compute_ns, apart, cost, known.sizes)


def raised(
    problem: Problem,
    synchronisation: Way,
    mode: Mode,
    least_ns: int,
    plan_ns: int,
    plan: Plan | None = None,
) -> int:
    """Return a bound of at least `least_ns`, stronger if costs are concave.

    `least_ns` is the result of `bound`, `plan_ns` the value of some plan. If that is near the
    bound, or costs are not concave, `least_ns` is returned.
    """
    if len(synchronisation.options) == 1 or plan_ns <= least_ns + least_ns // NEAR:
        return least_ns
    # Imports NumPy.
    from planner.families.caramel.grid_bounds import concave_bound
    from planner.families.iteration.pushes_in_forward_bound import right_pushes_bound

    known = _windows(problem, plan)
    if mode == "replicated":
        return max(least_ns, concave_bound(known, lines_of(synchronisation, "all_reduce")))
    lines = lines_of(synchronisation, "push")
    raised = right_pushes_bound(known, problem.pushed, problem.pulled, lines, plan_ns)
    return max(least_ns, raised)


def _windows(problem: Problem, plan: Plan | None) -> Windows:
    """Return the windows under a plan's op orders, or the problem's."""
    if plan is None:
        return problem.base.windows
    known = windows(problem.graph, plan.backward_orders[0], plan.forward_order)
    return replace(known, heads=heads_of(problem, plan))


def _with_both_halves(known: Windows, lines: Sequence[Line], least_ns: int) -> int:
    """Return the bound that counts a push and a pull for the innermost window."""
    startup = floor(min(startup for startup, _ in lines))
    for nested in widened(known):
        target, _ = Targets(nested, lines).least(max(least_ns - startup, 0))
        least_ns = max(least_ns, target + startup)
    return least_ns


def network_bound(problem: Problem, plan: Plan) -> int:
    """Return the lower bound over all algorithms, for a plan's op orders (ns)."""
    cheapest = least(problem.cluster)
    return min(bound(problem, cheapest, mode, plan) for mode in ("replicated", "sharded"))
