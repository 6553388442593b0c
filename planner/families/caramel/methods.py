"""Caramel's methods by name: baselines, exact methods, and the search behind `auto`.

Problem: choose the op orders, the groups and the order of transfers. Method: the search starts from
the plans of all baselines, and plans for the activation order and the mirrored order; on few
parameters the exact methods finish the plan. Guarantee: never longer than the best baseline; bounds
hold for the op order of the plan. Complexity: that of `search`, and of `exact_whole` and
`exact_split` up to their limits. Source: own; each baseline names its source.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from planner.families.caramel.baselines import (
    bytescheduler,
    ddp,
    horovod,
    layer_by_layer,
    mg_wfbp,
    parameter_servers,
)
from planner.families.caramel.bounds import NEAR, lower_bound
from planner.families.caramel.descent import descend
from planner.families.caramel.evaluation import lasting_ns
from planner.families.caramel.paper import caramel
from planner.families.caramel.pricing import Load, LoadPricer, loads_of, plan_of
from planner.families.caramel.problem import OpOrder, Plan, Problem
from planner.families.caramel.search import BUDGET, best_loads
from planner.families.caramel.windows import windows
from planner.model.errors import NotApplicableError
from planner.solving.contention import plans_of
from planner.solving.deadline import Deadline
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, named

Method: TypeAlias = AnyMethod[Problem, Plan]

EXACT_PARAMETERS = 12
"""Largest number of parameters for the optimum of whole parameters: 3^12 transfers per target."""

SPLIT_PARAMETERS = 6
"""Largest number of parameters for which the best cuts are searched by CP-SAT."""

SPLIT_WORK = 2.0
"""CP-SAT's deterministic time for that search, about seconds: mostly enough for a proof."""


def _exact(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Find the optimal grouping and order of whole parameters."""
    from planner.families.caramel.exact_whole import best_whole

    known, cost = problem.windows, problem.cost
    count = len(known.sizes)
    if count > EXACT_PARAMETERS:
        raise NotApplicableError(
            "method",
            f"exact takes up to {EXACT_PARAMETERS} parameters, got {count}; auto has no limit and "
            "says how far from the best it can be",
        )
    bound = lower_bound(known, cost)
    pricer = LoadPricer(known, cost)
    apart: list[Load] = [
        ((j, known.sizes[j]),) for j in sorted(range(count), key=known.heads.__getitem__)
    ]
    start = descend(pricer, apart, bound, BUDGET, deadline)
    value = pricer.iteration_ns(start)
    better, timed_out = best_whole(known, cost, value, bound, deadline)
    loads = start if better is None else better
    proven = bound if timed_out else pricer.iteration_ns(loads)
    return Outcome(plan_of(problem, problem.order, loads), proven, timed_out)


def search(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Find the best plan, starting from the plans of all baselines."""
    plans: list[Plan] = []
    for made in plans_of(problem, BASELINES.values(), deadline):
        assert made.plan is not None
        deadline.report_incumbent(made.plan)
        plans.append(made.plan)
    outcome = _best(problem, problem.order, [loads_of(plan) for plan in plans], deadline)
    deadline.report_incumbent(outcome.plan)
    outcome, best = _mirrored(problem, outcome, deadline)
    if deadline.passed:
        return replace(outcome, timed_out=True)
    lasting = [lasting_ns(problem, plan) for plan in plans]
    if not plans or min(lasting) >= best:
        return outcome
    luckiest = plans[lasting.index(min(lasting))]
    # A baseline with randomly drawn orders is better. Plan for one of its orders, enforced: no
    # gradient is ready later under one order than under several.
    return _best(problem, luckiest.order, [loads_of(luckiest)], deadline)


def _mirrored(
    problem: Problem, outcome: Outcome[Plan], deadline: Deadline
) -> tuple[Outcome[Plan], int]:
    """Return the better of a plan and the best plan under the mirrored op order, and its value.

    Windows are (nearly) nested under the mirrored order, so its best plan is mostly optimal for
    that order. Which of the two orders is better depends on the problem.
    """
    assert outcome.plan is not None
    best = lasting_ns(problem, outcome.plan)
    if deadline.passed or best == problem.windows.compute_ns:
        return outcome, best
    known = windows(problem.graph, *problem.mirrored)
    if known == problem.windows or lower_bound(known, problem.cost) >= best:
        return outcome, best
    mirrored = _best(problem, problem.mirrored, [], deadline)
    assert mirrored.plan is not None
    value = lasting_ns(problem, mirrored.plan)
    if value < best:
        return mirrored, value
    return replace(outcome, timed_out=outcome.timed_out or mirrored.timed_out), best


def _best(
    problem: Problem, order: OpOrder, starts: list[list[Load]], deadline: Deadline
) -> Outcome[Plan]:
    """Return the best plan found under one op order."""
    known = windows(problem.graph, *order)
    bound = lower_bound(known, problem.cost)
    pricer = LoadPricer(known, problem.cost)
    loads = best_loads(pricer, problem.cost, bound, starts, problem.element_bytes, deadline)
    value = pricer.iteration_ns(loads)
    timed_out = deadline.passed
    if not timed_out and value > bound + bound // NEAR:
        from planner.families.caramel.grid_bounds import tighter_bound  # imports NumPy

        bound = tighter_bound(known, problem.cost, bound, value)
    if value > bound and len(known.sizes) <= EXACT_PARAMETERS:
        from planner.families.caramel.exact_whole import best_whole

        better, timed_out = best_whole(known, problem.cost, value, bound, deadline)
        if better is not None:
            loads, value = better, pricer.iteration_ns(better)
    if value > bound and len(known.sizes) <= SPLIT_PARAMETERS and not timed_out:
        from planner.families.caramel.exact_split import best_grouping

        try:
            grouping = best_grouping(
                known,
                problem.cost,
                value,
                deadline=deadline,
                quantum=problem.element_bytes,
                lower=bound,
                max_work=SPLIT_WORK,
            )
        except NotApplicableError:  # no bound on the number of transfers is known
            return Outcome(plan_of(problem, order, loads), bound, timed_out)
        if grouping.value is not None and grouping.value < value:
            loads, value = list(grouping.groups), grouping.value
        bound, timed_out = max(bound, grouping.lower_bound), deadline.passed
    return Outcome(plan_of(problem, order, loads), bound, timed_out and value > bound)


BASELINES: Mapping[str, Method] = {
    "caramel": caramel,
    "ddp": ddp,
    "horovod": horovod,
    "mg_wfbp": mg_wfbp,
    "bytescheduler": bytescheduler,
    "layer_by_layer": layer_by_layer,
    "ps": parameter_servers,
}
"""The baselines; each follows one fixed rule."""


OWN_METHODS: Mapping[str, Method] = {
    "auto": named("search", search),
    "search": search,
    "exact": _exact,
    # May cut parameters; on few of them CP-SAT tries to prove that no plan is better.
    "exact_split": lambda problem, deadline: _best(problem, problem.order, [], deadline),
    **BASELINES,
}
"""Every method by its name in requests, without plug-ins."""
