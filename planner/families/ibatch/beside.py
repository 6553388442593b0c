"""Contention (`beside`): batches whose communication slows down overlapping computation.

Problem: that of `planner.families.ibatch.problem` with contention (`planner.model.contention`).
Without contention every plan is at most as long, so the optimum without contention is a lower
bound. Method: price every plan of up to `ENUMERATED` layers. For more layers, run the fixed point
of `planner.solving.contention` with the exact method for problems without contention. Guarantee:
optimal up to `ENUMERATED` layers. Otherwise, unless time runs out, no longer than any baseline's
plan or the optimal plan without contention. Complexity: 2^(L-1) evaluations, or that of
`planner.solving.contention`. Source: own.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from planner.families.ibatch.evaluation import durations_beside, evaluate
from planner.families.ibatch.problem import Plan, Problem
from planner.model.contention import ALONE, bound_beside
from planner.model.costs import scaled_cost
from planner.solving.contention import Beside, best_beside, mean_slowdown, plans_of
from planner.solving.deadline import Deadline
from planner.solving.methods import Method, Outcome

ENUMERATED = 10
"""Up to this many layers every plan is priced: 512 plans."""


def planned_beside(
    problem: Problem, methods: Sequence[Method[Problem, Plan]], deadline: Deadline
) -> Outcome[Plan]:
    """Return the best feasible batches found under contention; no layer may exceed the cap.

    `methods` plan without contention: the exact method, and baselines, each of which runs once.
    """
    alone = replace(problem, interference=ALONE)

    def lasts(plan: Plan) -> int:
        return evaluate(problem, plan).makespan_ns

    if problem.layers <= ENUMERATED:
        best = min(problem.every_plan(), key=lasts)
        return Outcome(best, lasts(best))

    def asked(plan: Plan | None, charged: int) -> Problem:
        assert problem.cost is not None
        if plan is None:
            return replace(alone, cost=scaled_cost(problem.cost, extra_ns=charged))
        transfers, slower = durations_beside(problem, plan)
        lasted = sum(problem.transfer_time(start, stop) for start, stop in plan.batches)
        factor = mean_slowdown(sum(transfers), lasted)
        return replace(
            alone,
            compute_ns=tuple(slower),
            cost=scaled_cost(
                problem.cost, startup=factor, rate=factor, extra_ns=charged, rounding=ceil
            ),
        )

    family = Beside(
        lasts=lasts,
        transfers=lambda plan: plan.batches,
        asked=asked,
        search=lambda asked: (methods[0](asked, deadline),),
        joined=lambda plan, place: merged(problem, plan, place),
    )
    first = plans_of(alone, methods, deadline)
    startup = problem.interference.least_ns
    return best_beside(family, first, startup, deadline, least_beside(problem))


def least_beside(problem: Problem) -> int:
    """Return a lower bound on the makespan under contention (ns)."""
    if problem.interference.is_none:
        return 0
    assert problem.cost is not None
    assert problem.layer_bytes is not None
    # The last layer overlaps no transfer: a pull computes it after all arrived, a push before any.
    return bound_beside(
        problem.interference,
        problem.compute_prefix[-1],
        problem.compute_ns[-1],
        problem.cost,
        problem.layer_bytes,
    )


def merged(problem: Problem, plan: Plan, place: int) -> Plan | None:
    """Return the plan with batch `place` and the next one merged, or None beyond the cap."""
    first, second = plan.batches[place : place + 2]
    both = min(first[0], second[0]), max(first[1], second[1])
    if both[1] > problem.reach(both[0]):
        return None
    return Plan((*plan.batches[:place], both, *plan.batches[place + 2 :]))
