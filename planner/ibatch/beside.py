"""Batches beside which computation is slower.

Problem: that of `planner.ibatch.problem`, but a communication takes processor time from the
computation beside it, and lasts longer there (`planner.interference`). What the exact methods
prove holds without that only, where every plan is at most as long: their optimum is a bound.

Method: all cuts of up to `ENUMERATED` layers are priced. For more, `planner.beside`, by the exact
method that knows no interference, from the plans of all rules.

Guarantee: of up to `ENUMERATED` layers the best plan. Else, unless a time limit cuts in, none
longer than that of any rule, nor than what is best without interference.

Complexity: 2^(layers - 1) prices, or that of `planner.beside`. Source: own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, combinations, pairwise
from math import ceil

from planner.beside import Beside, best_beside, mean_slowdown, plans_of
from planner.costs import scaled_cost
from planner.deadline import Deadline
from planner.ibatch.evaluation import evaluate
from planner.ibatch.problem import Plan, Problem
from planner.interference import ALONE, bound_beside
from planner.simulator import TimedTransfer, simulate
from planner.solving.methods import Method, Outcome

__all__ = ["least_beside", "merged", "planned_beside"]

ENUMERATED = 10
"""Up to so many layers all plans are priced: 512 of them."""


def planned_beside(
    problem: Problem,
    exact: Method[Problem, Plan],
    rules: Iterable[Method[Problem, Plan]],
    deadline: Deadline,
) -> Outcome[Plan]:
    """Return the best batches found for a problem with interference, each of which can be sent.

    Parameters
    ----------
    problem : Problem
        The problem; no layer exceeds the cap.
    exact : method
        Plans without interference.
    rules : iterable of method
        Others that do, once each.
    deadline : Deadline
        When to stop.
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
    """Return what no plan undercuts because transfers and computation take from each other."""
    if problem.interference.is_none:
        return 0
    assert problem.cost is not None
    assert problem.layer_bytes is not None
    # A pull is followed by the last layer's computation; the push's first layer comes before all.
    return bound_beside(
        problem.interference,
        problem.compute_prefix[-1],
        problem.compute_ns[-1],
        problem.cost,
        problem.layer_bytes,
    )


def _cuts(problem: Problem) -> Iterator[Sequence[int]]:
    """Yield the boundaries of every plan, those of fewer batches first."""
    count = problem.layers
    for cuts in range(count):
        for inner in combinations(range(1, count), cuts):
            boundaries = (0, *inner, count)
            if all(stop <= problem.reach(start) for start, stop in pairwise(boundaries)):
                yield boundaries


def merged(problem: Problem, plan: Plan, place: int) -> Plan | None:
    """Return a plan with a batch and the next one sent together; None beyond the cap."""
    first, second = plan.batches[place : place + 2]
    both = min(first[0], second[0]), max(first[1], second[1])
    if both[1] > problem.reach(both[0]):
        return None
    return Plan((*plan.batches[:place], both, *plan.batches[place + 2 :]))


def _layers_as_they_went(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """Return how long each layer computes under a plan."""
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
