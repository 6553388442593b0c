"""The plan of a whole iteration for several scenarios at once: the least mean, or percentile.

Problem: times are not known, but scenarios and their weights are. One plan is made for all.

Method: the usual plan is made first. Under its op order, by its algorithms and in its mode, the
joint plan of each scenario, and those if transfers or computation took a fifth longer, are made,
too. Those plans, the best of every algorithm and mode, layer by layer, other rules' transfers and
DDP's in several numbers of buckets are priced in all scenarios; the best is taken that lasts by
the numbers as they are at most `planner.scenarios.MOST` times as long as the usual one.

Guarantee: never worse, by what counts, than the usual plan. The bound is what counts of what no
plan undercuts in each scenario, by any algorithm and in any mode, under the op order of the plan:
neither the mean nor a percentile falls if a time rises.

Complexity: one joint plan by one algorithm a scenario, and some 20 prices in each.
Source: own; as `planner.caramel.outlook`, without its local search.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import chain

from planner.bucketing import BUCKET_COUNTS
from planner.caramel.baselines import ddp
from planner.deadline import Cancel, Deadline, TimeUpError
from planner.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.iteration.checker import check, check_room
from planner.iteration.evaluation import Evaluation, lasting
from planner.iteration.mixing import settled
from planner.iteration.plan import Plan
from planner.iteration.problem import Problem
from planner.iteration.room import capped
from planner.iteration.rules import GRADIENTS, Rule, by_gradients, enforced, layers_apart, servers
from planner.iteration.scenarios import under
from planner.iteration.solver import bound_under, result_of, solve
from planner.iteration.ways import MIXED
from planner.methods import Outcome, deadline_in
from planner.results import Result
from planner.scenarios import LONGER, MOST, Outlook, Prospect
from planner.validation import inside

__all__ = ["solve_for"]

LEAST_SECONDS = 0.001
"""What the planning for each scenario gets at least."""


def solve_for(
    problem: Problem,
    outlook: Outlook,
    *,
    time_limit: float | None = None,
    cancel: Cancel | None = None,
    usual: Result[Plan, Evaluation] | None = None,
    others: Iterable[Plan] = (),
) -> tuple[Result[Plan, Evaluation], Prospect | None]:
    """Plan for several scenarios.

    Parameters
    ----------
    problem : Problem
        With the numbers as they are; without a target.
    outlook : Outlook
        The scenarios.
    time_limit : float, optional
        Seconds after which the best plan so far is returned.
    cancel : Cancel, optional
        Does the same.
    usual : Result, optional
        The joint plan for the numbers as they are; made if it is not given.
    others : iterable of Plan
        Other plans of the problem to choose from.

    Returns
    -------
    result : Result
        The plan, judged by the numbers as they are; or why there is none.
    prospect : Prospect or None
        What it costs in the scenarios.

    Raises
    ------
    InvalidInputError
        If the numbers of a scenario are too large.
    """
    begin, deadline = time.perf_counter(), deadline_in(time_limit, cancel)
    if usual is None:
        usual = solve(
            problem, time_limit=_share(deadline, len(outlook.scenarios)), cancel=deadline.cancel
        )
    start, usual_ns = usual.plan, usual.objective_ns
    if start is None or usual_ns is None:
        return usual, None
    names = [op.name for op in problem.graph.ops]
    orders = (*start.backward_orders[0], *start.forward_order)
    fixed = replace(problem, op_order=tuple(names[index] for index in orders))
    variants = []
    for place, (scenario, _) in enumerate(outlook.scenarios):
        with inside(f"scenarios[{place}]"):
            variants.append(under(fixed, scenario))

    def value(plan: Plan) -> Fraction:
        return outlook.of([lasting(variant, plan)(variant.costs) for variant in variants])

    best, least = start, value(start)
    usual_value = least
    seen: set[Plan] = {start}
    for plan in chain(others, _candidates(fixed, variants, start, deadline)):
        if deadline.passed:
            break
        if plan in seen or not _may_be(problem, plan, MOST * usual_ns):
            continue
        seen.add(plan)
        counts = value(plan)
        if counts < least:
            best, least = plan, counts
    bound = outlook.of([bound_under(variant, best, brief=deadline.passed) for variant in variants])
    prospect = Prospect(least, min(bound, least), usual_ns, usual_value)
    if best is start:
        return replace(usual, runtime_s=time.perf_counter() - begin + usual.runtime_s), prospect
    outcome = Outcome(best, None, usual.timed_out or deadline.passed, method=usual.method)
    if best.backward_orders == start.backward_orders:
        outcome = replace(outcome, lower_bound=usual.lower_bound_ns)
    return result_of(problem, outcome, time.perf_counter() - begin), prospect


def _share(deadline: Deadline, count: int) -> float | None:
    left = deadline.remaining_s
    return None if left is None else max(left / (count + 1), LEAST_SECONDS)


def _candidates(
    fixed: Problem, variants: Sequence[Problem], start: Plan, deadline: Deadline
) -> Iterator[Plan]:
    """Yield plans in the op order that is fixed."""
    way = next(option for option in fixed.options if option.algorithm == start.way)
    size = sum(fixed.pushed)
    rules: dict[str, Rule] = {**GRADIENTS}
    if start.mode == "sharded":
        rules = {"layers": layers_apart, "parameters": servers}
    else:
        for count in BUCKET_COUNTS:
            limit = max(-(-size // count), 1)
            rules[f"{count} buckets"] = by_gradients(partial(ddp, limits=(limit, limit)))
    for rule in rules.values():
        if deadline.passed:
            return
        with suppress(NotApplicableError, TimeUpError):
            transfers = rule(fixed, way, deadline).transfers
            plan = enforced(fixed, way.algorithm, (replace(t, not_before_ns=0) for t in transfers))
            yield settled(capped(fixed, plan), way)
    single = start.way != MIXED and start.way in fixed.algorithms
    algorithms = (start.way,) if single else fixed.algorithms
    tried = [fixed]
    left = [*variants]
    for scenario in LONGER:
        with suppress(InvalidInputError):  # whose numbers are too large
            left.append(under(fixed, scenario))
    for place, variant in enumerate(left):
        if deadline.passed or variant in tried:
            continue
        tried.append(variant)
        narrow = replace(variant, algorithms=algorithms, modes=(start.mode,))
        planned = solve(
            narrow, time_limit=_share(deadline, len(left) - place), cancel=deadline.cancel
        ).plan
        if planned is not None:
            yield planned
            yield settled(planned, way)


def _may_be(problem: Problem, plan: Plan, most_ns: Fraction) -> bool:
    """Return whether a plan is one, and does not last too long."""
    try:
        check(problem, plan)
        check_room(problem, plan)
    except InvalidPlanError:
        return False
    return lasting(problem, plan)(problem.costs) <= most_ns
