"""Combinatorial lower bound on the makespan and on Eq. 4: the one-machine bound with tails.

Bound: layers 0 … i arrive no earlier than the cheapest way to send their bytes in any number of
transfers; then layers i … L-1 remain to be computed. Pushes: time reversal. For Eq. 4: all bytes
sent in the cheapest way, then the last layer's computation. An affine cost is cheapest in one
transfer. A table costs at least all bytes at its best rate, and at least its cheapest transfer.
Without contention every plan is at most as long, so these bounds hold under contention too.
Complexity: O(L). Source: own; the bound of scheduling theory, applied to batches.
"""

from math import ceil
from operator import sub

from planner.families.ibatch.evaluation import check, evaluate, objective_ns
from planner.families.ibatch.greedy import cut_from_left, greedy_backward
from planner.families.ibatch.problem import Plan, Problem
from planner.model.contention import contention_bound
from planner.model.costs import TableCost, least_rate
from planner.model.errors import BrokenConstraintError
from planner.solving.deadline import NEVER
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility


def relaxation(problem: Problem) -> int:
    """Return a lower bound on the objective (ns)."""
    count, computed = problem.layers, problem.compute_prefix
    total = computed[count]
    startup, arrival = problem.transfer_startup_ns, problem.transfer_prefix
    if arrival is None:
        startup, arrival = 0, _cheapest_arrivals(problem)
    if problem.objective == "eq4":
        return startup + arrival[count] + total - computed[count - 1]
    latest: int = max(map(sub, arrival[1:], computed))
    return startup + total + latest


def _cheapest_arrivals(problem: Problem) -> list[int]:
    """Return a lower bound on the arrival time of each prefix of layers (ns)."""
    cost, sizes = problem.cost, problem.size_prefix
    assert cost is not None
    assert sizes is not None
    if not isinstance(cost, TableCost):  # subadditive: splitting a transfer never saves time
        return [cost.cost_ns(size) for size in sizes]
    cheapest = min(time for _, time in cost.points)
    rate = least_rate(cost, max(sizes[-1], 1))
    return [max(cheapest, ceil(rate * size)) for size in sizes]


def contention_relaxation(problem: Problem) -> int:
    """Return a lower bound on the makespan under contention (ns); 0 without it."""
    if problem.interference.is_none:
        return 0
    assert problem.cost is not None
    assert problem.layer_bytes is not None
    # The last layer overlaps no transfer: a pull computes it after all transfers, a push before.
    return contention_bound(
        problem.interference,
        problem.compute_prefix[-1],
        problem.compute_ns[-1],
        problem.cost,
        problem.layer_bytes,
    )


# ---
# Results of searches that find no plan of their own: time limit or proof of infeasibility.


def out_of_time(problem: Problem) -> Outcome[Plan]:
    """Return the better of a greedy plan and the longest batches within the cap, with a bound.

    With Eq. 4 and a cap, both may break Eq. 5; then there is no plan.
    """
    plans = problem.plan(cut_from_left(problem, [0])), greedy_backward(problem, NEVER).plan
    known = {}
    for plan in plans:
        assert plan is not None
        try:
            check(problem, plan)
        except BrokenConstraintError:
            continue
        known[objective_ns(problem, evaluate(problem, plan))] = plan
    if not known:
        reason = "the time limit passed before any plan within max_batch_bytes was found"
        return Outcome(None, infeasibility=Infeasibility(reason, ("time_limit_s",)), timed_out=True)
    return Outcome(known[min(known)], relaxation(problem), timed_out=True)


def nothing_covers(problem: Problem) -> Infeasibility:
    """Return the infeasibility when Eq. 5 and the cap admit no plan."""
    return Infeasibility(
        f"within max_batch_bytes = {problem.max_batch_bytes} every choice of batches breaks Eq. 5 "
        "(computation of a batch outlasts communication of the next); without the cap one batch "
        "always satisfies it",
        ("eq5", "max_batch_bytes"),
    )
