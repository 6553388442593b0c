"""What no plan of a whole iteration undercuts, for one op order.

Problem: how short can an iteration be at best under one synchronisation algorithm, however
gradients are cut, grouped and ordered?

Method: replicated plans are gradient transfers, and `planner.caramel.bounds` bounds them. For
sharded ones, take all pushes and pulls of a plan: each is a transfer that leaves no earlier than
its gradients are ready, and ends no later than the forward pass needs them (a push does, as its
pull comes later), at the cost of one half. Together they are a plan of gradient transfers that may
be cut, of pushed and pulled bytes with half the start-up, and the same bounds hold. Besides, every
parameter becomes ready, is pushed, pulled and read one after the other. And the start-up-aware
bound (`planner.caramel.nested`), which begins with one transfer for the innermost window, may begin
with two here, a push and a pull, both within that window: one start-up more. Pushes and pulls
counted apart give the strongest bound (`planner.iteration.sharded_bound`). Where transfers have
at most c bytes, α + β·x is at least (β + α/c)·x: a bound for that rate without start-ups holds too.

Guarantee: no plan of the mode and the op order lasts less. With the cost of
`planner.iteration.synchronisation.least` no plan by any algorithm does.

Complexity: that of `planner.caramel.bounds` and `planner.iteration.sharded_bound`. Source: own.
"""

from dataclasses import replace
from fractions import Fraction

from planner.caramel.bounds import lower_bound
from planner.caramel.jackson import preemptive_bound
from planner.caramel.nested import Targets, widened
from planner.caramel.windows import Windows, windows
from planner.costs import AffineCost
from planner.iteration.evaluation import heads_of
from planner.iteration.problem import Mode, Plan, Problem
from planner.iteration.sharded_bound import sharded_bound
from planner.iteration.synchronisation import Synchronisation, least

__all__ = ["bound", "network_bound"]


def bound(
    problem: Problem,
    synchronisation: Synchronisation,
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
    synchronisation : Synchronisation
        What transfers cost.
    mode : {"replicated", "sharded"}
        Which plans.
    plan : Plan, optional
        Whose op orders are meant; by default the problem's.
    brief : bool
        Whether to leave out what takes a search: weaker where start-ups count.
    """
    known = problem.base.windows
    if plan is not None:
        known = windows(problem.graph, plan.backward_orders[0], plan.forward_order)
        known = replace(known, heads=heads_of(problem, plan))
    pushed, pulled = problem.pushed, problem.pulled
    cost, alone = synchronisation.all_reduce, 0
    if mode == "sharded":
        cost = half = synchronisation.half
        sizes = tuple(push + pull for push, pull in zip(pushed, pulled, strict=True))
        alone = max(
            head + half.cost_ns(push) + half.cost_ns(pull) + tail
            for head, push, pull, tail in zip(known.heads, pushed, pulled, known.tails, strict=True)
        )
        known = replace(known, sizes=sizes)
    least_ns = max(alone, preemptive_bound(known, cost) if brief else lower_bound(known, cost))
    if brief:
        return least_ns
    if mode == "sharded":
        least_ns = _with_both_halves(known, cost, least_ns)
        least_ns = sharded_bound(known, pushed, pulled, cost, least_ns)
    room = problem.room(mode)
    if room is None or not 0 < room < sum(known.sizes):
        return least_ns
    rate = cost.ns_per_byte + Fraction(cost.startup_ns, room)
    return max(least_ns, lower_bound(known, AffineCost(0, rate)))


def _with_both_halves(known: Windows, half: AffineCost, least_ns: int) -> int:
    """Return the bound that counts a push and a pull for the innermost window."""
    line, startup = (Fraction(half.startup_ns), half.ns_per_byte), half.startup_ns
    for nested in widened(known):
        target, _ = Targets(nested, (line,)).least(max(least_ns - startup, 0))
        least_ns = max(least_ns, target + startup)
    return least_ns


def network_bound(problem: Problem, plan: Plan) -> int:
    """Return what no plan of a plan's op orders undercuts, in ns, whatever the algorithm."""
    cheapest = least(problem.cluster)
    return min(bound(problem, cheapest, mode, plan) for mode in ("replicated", "sharded"))
