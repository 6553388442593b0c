"""What no plan of a whole iteration undercuts, for one op order.

Problem: how short can an iteration be at best under one synchronisation algorithm, however
gradients are cut, grouped and ordered?

Method: replicated plans are gradient transfers, and `planner.caramel.bounds` bounds them. For
sharded ones, take all pushes and pulls of a plan: a push leaves no earlier than its gradients are
ready, a pull no earlier than the backward pass has ended, and both end no later than the forward
pass needs them (a push does, as its pull comes later), at the cost of one half. Together they are a
plan of gradient transfers that may be cut, twice as many with half the start-up, and the same
bounds hold. Besides, every parameter becomes ready, is pushed, pulled after the backward pass, and
read one after the other. And the start-up-aware bound (`planner.caramel.nested`), of which each
window has the bytes pushed and pulled, may begin with two transfers for the innermost one, a push
and a pull: one start-up more. Pushes and pulls counted apart give the strongest bound
(`planner.iteration.sharded_bound`). Where costs are concave, and a plan is not near all these, what
each transfer carries counts too (`raised`: `planner.caramel.inwards` and
`planner.iteration.right_pushes`). Where transfers have at most c bytes, α + β·x is at least
(β + α/c)·x: a bound for that rate without start-ups holds too; for the least of several lines, the
least of these rates. All of them hold for such a cost. Of a
table each supporting line is such a bound, of a push and a pull that cost differently those below
both (`planner.iteration.ways.bounding_lines`): the strongest counts. Interference makes nothing
earlier, and so leaves them valid; what it takes at least is `planner.interference.bound_beside`, of
pushes and pulls together where there are any.

Guarantee: no plan of the mode and the op order lasts less. With the cost of
`planner.iteration.synchronisation.least` no plan by any algorithm does.

Complexity: that of `planner.caramel.bounds` and `planner.iteration.sharded_bound`. Source: own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, floor
from operator import add

from planner.caramel.bounds import NEAR, lower_bound
from planner.caramel.jackson import preemptive_bound
from planner.caramel.nested import Line, Targets, widened
from planner.caramel.windows import Windows, windows
from planner.costs import AffineCost, DepthCost, TransferCost
from planner.interference import bound_beside
from planner.iteration.evaluation import heads_of
from planner.iteration.plan import Mode, Plan
from planner.iteration.problem import Problem
from planner.iteration.sharded_bound import sharded_bound
from planner.iteration.synchronisation import least
from planner.iteration.ways import Way, bounding_lines, lines_of

__all__ = ["bound", "network_bound", "raised"]


def bound(
    problem: Problem,
    synchronisation: Way,
    mode: Mode,
    plan: Plan | None = None,
    *,
    brief: bool = False,
) -> int:
    """Return what no plan of one mode undercuts, in ns.

    Parameters
    ----------
    problem : Problem
        The problem.
    synchronisation : Way
        What transfers cost.
    mode : {"replicated", "sharded"}
        Which plans.
    plan : Plan, optional
        Whose op orders are meant; by default the problem's.
    brief : bool
        Whether to leave out what takes a search: weaker where start-ups count.
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
    """Return what so many bytes cost at least, in however many transfers of one kind."""
    if isinstance(cost, AffineCost) or (isinstance(cost, DepthCost) and cost.is_concave):
        return cost.cost_ns
    return lambda size: max(
        ceil(min(startup + rate * size for startup, rate in lines)) for lines in minorants
    )


def _beside(problem: Problem, mode: Mode, cost: TransferCost, known: Windows) -> int:
    """Return what transfers and computation need that disturb each other, windows as of all."""
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
    """Return a bound that is at least another one, and stronger if costs are concave.

    Parameters
    ----------
    problem : Problem
        The problem.
    synchronisation : Way
        What transfers cost.
    mode : {"replicated", "sharded"}
        Which plans.
    least_ns : int
        What `bound` returns for the same.
    plan_ns : int
        What some plan lasts. If that is near the bound, or costs are not concave, nothing is done.
    plan : Plan, optional
        Whose op orders are meant; by default the problem's.
    """
    if len(synchronisation.options) == 1 or plan_ns <= least_ns + least_ns // NEAR:
        return least_ns
    # Imports NumPy.
    from planner.caramel.inwards import concave_bound
    from planner.iteration.right_pushes import right_pushes_bound

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
    """Return what no plan of a plan's op orders undercuts, in ns, whatever the algorithm."""
    cheapest = least(problem.cluster)
    return min(bound(problem, cheapest, mode, plan) for mode in ("replicated", "sharded"))
