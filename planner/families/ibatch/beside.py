"""Contention (`beside`): batches whose communication slows down overlapping computation.

Problem: that of `planner.families.ibatch.problem` with contention (`planner.model.contention`).
Without contention every plan is at most as long, so the optimum without contention is a lower
bound. Method: price every plan of up to `ENUMERATED` layers. For more layers, run the fixed point
of `planner.solving.contention` with the exact method for problems without contention. Guarantee:
optimal up to `ENUMERATED` layers. Otherwise, unless time runs out, no longer than any baseline's
plan or the optimal plan without contention. Complexity: 2^(L-1) evaluations, or that of
`planner.solving.contention`. Source: own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, combinations, pairwise
from math import ceil

from planner.families.ibatch.evaluation import evaluate
from planner.families.ibatch.problem import Plan, Problem
from planner.model.contention import ALONE, bound_beside
from planner.model.costs import scaled_cost
from planner.solving.contention import Beside, best_beside, mean_slowdown, plans_of
from planner.solving.deadline import Deadline
from planner.solving.methods import Method, Outcome
from planner.solving.simulator import TimedTransfer, simulate

ENUMERATED = 10
"""Up to this many layers every plan is priced: 512 plans."""


def planned_beside(
    problem: Problem,
    exact: Method[Problem, Plan],
    rules: Iterable[Method[Problem, Plan]],
    deadline: Deadline,
) -> Outcome[Plan]:
    """Return the best feasible batches found under contention.

    `exact` plans without contention; `rules` are the baselines, each run once. No layer may exceed
    the cap.
    """
    alone = replace(problem, interference=ALONE)

    def lasts(plan: Plan) -> int:
        return evaluate(problem, plan).makespan_ns

    if problem.layers <= ENUMERATED:
        best = min(map(problem.plan, _cuts(problem)), key=lasts)
        return Outcome(best, lasts(best))

    def asked(plan: Plan | None, charged: int) -> Problem:
        assert problem.cost is not None
        if plan is None:
            return replace(alone, cost=scaled_cost(problem.cost, extra_ns=charged))
        times = evaluate(problem, plan).schedule
        lasted = sum(problem.transfer_time(start, stop) for start, stop in plan.batches)
        factor = mean_slowdown(sum(batch.transfer_ns for batch in times), lasted)
        slower = _layers_as_they_went(problem, plan)
        return replace(
            alone,
            compute_ns=slower,
            cost=scaled_cost(
                problem.cost, startup=factor, rate=factor, extra_ns=charged, rounding=ceil
            ),
        )

    family = Beside(
        lasts=lasts,
        transfers=lambda plan: plan.batches,
        asked=asked,
        search=lambda asked: (exact(asked, deadline),),
        joined=lambda plan, place: merged(problem, plan, place),
    )
    first = plans_of(alone, (exact, *rules), deadline)
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


def _cuts(problem: Problem) -> Iterator[Sequence[int]]:
    """Yield the boundaries of every plan within the cap, fewest batches first."""
    count = problem.layers
    for cuts in range(count):
        for inner in combinations(range(1, count), cuts):
            boundaries = (0, *inner, count)
            if all(stop <= problem.reach(start) for start, stop in pairwise(boundaries)):
                yield boundaries


def merged(problem: Problem, plan: Plan, place: int) -> Plan | None:
    """Return the plan with batch `place` and the next one merged, or None beyond the cap."""
    first, second = plan.batches[place : place + 2]
    both = min(first[0], second[0]), max(first[1], second[1])
    if both[1] > problem.reach(both[0]):
        return None
    return Plan((*plan.batches[:place], both, *plan.batches[place + 2 :]))


def _layers_as_they_went(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """Return each layer's computation time under a plan with contention (ns)."""
    taken = problem.transfers(plan)
    if problem.direction == "pull":
        steps = [
            TimedTransfer(0, lasts, start, 0, *beside)
            for (start, _), (lasts, *beside) in zip(plan.batches, taken, strict=True)
        ]
        spans = simulate((), problem.compute_ns, steps).forward
        return tuple(end - start for start, end in spans)
    backward = problem.compute_ns[::-1]
    done = list(accumulate(backward, initial=0))
    steps = [
        TimedTransfer(done[problem.layers - start], lasts, 0, 0, *beside)
        for (start, _), (lasts, *beside) in zip(plan.batches, taken, strict=True)
    ]
    spans = simulate(backward, (), steps).backward
    return tuple(end - start for start, end in spans)[::-1]
