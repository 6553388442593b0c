"""The plan for several scenarios at once: the least mean, or percentile, of what iterations last.

Problem: times are not known, but scenarios and their weights are. One plan is made for all.

Method: the op order is that of the plan for the numbers as they are. Under it `auto` plans for
every scenario, and for transfers or computation that take a fifth longer; their plans, that plan,
what every rule sends, and DDP's buckets in several numbers are priced in all scenarios, of up to
`ENUMERATED` parameters all ways to group and order whole ones, too. The best is improved by
local search: the changes of `planner.caramel.descent` that help some scenario, if they help all
together. By the numbers as they are no plan may last more than `MOST` times as long as the plan for
them.

Guarantee: never worse, by what counts, than the plan for the numbers as they are; of up to
`ENUMERATED` parameters than no plan of whole ones that keeps to `MOST`, unless a time limit cuts
in. The bound is what counts of the scenarios' own bounds: no plan under the op order is below one
of them anywhere, and neither the mean nor a percentile falls if a time rises.

Complexity: one run of `auto` a scenario, and a fixed budget of prices in all scenarios.
Source: own; for sample averages Kleywegt, Shapiro, Homem-de-Mello, SIAM J. Optim. 12 (2002).
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations

from planner.bucketing import BUCKET_COUNTS
from planner.caramel.baselines import ddp
from planner.caramel.bounds import NEAR
from planner.caramel.descent import neighbours
from planner.caramel.evaluation import Evaluation, lasting_ns
from planner.caramel.loads import Load, LoadPricer, loads_of, plan_of
from planner.caramel.problem import Plan, Problem
from planner.caramel.scenarios import under
from planner.caramel.solver import RULES, result_of, solve
from planner.deadline import Cancel, Deadline, TimeUpError
from planner.errors import InvalidInputError, NotApplicableError
from planner.methods import Outcome, deadline_in
from planner.results import Result
from planner.scenarios import LONGER, MOST, Outlook, Prospect
from planner.validation import inside

__all__ = ["ENUMERATED", "solve_for"]

ENUMERATED = 4
"""Up to so many parameters all plans of whole ones are priced: 75 of four."""

PRICES = 2 * 10**6
"""Parts whose transfers the local search prices, in all scenarios together."""

LEAST_SECONDS = 0.001
"""What the planning for each scenario gets at least."""


def solve_for(
    problem: Problem,
    outlook: Outlook,
    *,
    time_limit: float | None = None,
    cancel: Cancel | None = None,
) -> tuple[Result[Plan, Evaluation], Prospect]:
    """Plan for several scenarios.

    Parameters
    ----------
    problem : Problem
        With the numbers as they are.
    outlook : Outlook
        The scenarios.
    time_limit : float, optional
        Seconds after which the best plan so far is returned.
    cancel : Cancel, optional
        Does the same.

    Returns
    -------
    result : Result
        The plan, judged by the numbers as they are.
    prospect : Prospect
        What it costs in the scenarios.

    Raises
    ------
    InvalidInputError
        If the numbers of a scenario are too large.
    """
    begin, deadline = time.perf_counter(), deadline_in(time_limit, cancel)
    count = len(outlook.scenarios) + len(LONGER) + 1
    usual = solve(problem, time_limit=_share(deadline, count), cancel=deadline.cancel)
    assert usual.plan is not None
    assert usual.objective_ns is not None
    names = [op.name for op in problem.graph.ops]
    orders = (*usual.plan.backward_orders[0], *usual.plan.forward_order)
    fixed = replace(problem, op_order=tuple(names[index] for index in orders))
    start = replace(usual.plan, backward_orders=usual.plan.backward_orders[:1])
    scenarios = []
    for place, (scenario, _) in enumerate(outlook.scenarios):
        with inside(f"scenarios[{place}]"):
            scenarios.append(under(fixed, scenario))
    plans: list[Plan] = []
    bounds = [0] * len(scenarios)
    for place, variant in enumerate(scenarios):
        if deadline.passed:
            break
        own = solve(variant, time_limit=_share(deadline, count - place - 1), cancel=deadline.cancel)
        bounds[place] = own.lower_bound_ns or 0
        if own.plan is not None:
            plans.append(own.plan)
    bound = outlook.of(bounds)
    search = _Search(fixed, scenarios, outlook, MOST * usual.objective_ns, deadline)
    best = search.better(start, plans)
    for loads in _others(fixed, start, plans, deadline):
        if deadline.passed or search.value(best) == bound:
            break
        best = search.better(best, [plan_of(fixed, fixed.order, loads)])
    best = search.improved(best, bound + bound / NEAR)
    value = search.value(best)
    outcome = Outcome(best, usual.lower_bound_ns, deadline.passed, method=usual.method)
    result = result_of(problem, outcome, time.perf_counter() - begin)
    return result, Prospect(value, bound, usual.objective_ns, search.value(usual.plan))


def _share(deadline: Deadline, count: int) -> float | None:
    left = deadline.remaining_s
    return None if left is None else max(left / (count + 1), LEAST_SECONDS)


class _Search:
    """Prices plans in all scenarios, and improves them."""

    def __init__(
        self,
        problem: Problem,
        scenarios: Sequence[Problem],
        outlook: Outlook,
        most_ns: Fraction,
        deadline: Deadline,
    ) -> None:
        self._problem, self._scenarios, self._outlook = problem, scenarios, outlook
        self._most_ns, self._deadline = most_ns, deadline
        self._values: dict[Plan, Fraction] = {}

    def value(self, plan: Plan) -> Fraction:
        """Return what counts of a plan's times."""
        if plan not in self._values:
            self._values[plan] = self._outlook.of(
                [lasting_ns(scenario, plan) for scenario in self._scenarios]
            )
        return self._values[plan]

    def better(self, plan: Plan, others: Iterable[Plan]) -> Plan:
        """Return a plan, or one of the others that is better and does not last too long."""
        for other in others:
            if self._deadline.passed:
                break
            if self._may_be(other) and self.value(other) < self.value(plan):
                plan = other
        return plan

    def improved(self, plan: Plan, target: Fraction) -> Plan:
        """Return a plan at least as good; every change counts as the family prices it."""
        value, loads = self.value(plan), loads_of(plan)
        left = PRICES // (len(self._scenarios) * max(len(loads), len(self._problem.windows.sizes)))
        left = self._pricers[0].looks(left, loads)
        improving = True
        while improving and value > target:
            improving = False
            if self._deadline.passed:
                break
            for changed in (new for pricer in self._pricers for new in neighbours(pricer, loads)):
                left -= 1
                if left < 0 or self._deadline.passed:
                    return plan
                if self._estimate(changed) >= value:
                    continue
                tried = self.better(plan, [plan_of(self._problem, self._problem.order, changed)])
                if tried is not plan:
                    plan, loads, value, improving = tried, changed, self.value(tried), True
                    break
        return plan

    @cached_property
    def _pricers(self) -> list[LoadPricer]:
        return [LoadPricer(scenario.windows, scenario.cost) for scenario in self._scenarios]

    def _may_be(self, plan: Plan) -> bool:
        return lasting_ns(self._problem, plan) <= self._most_ns

    def _estimate(self, loads: Sequence[Load]) -> Fraction:
        """Return what counts of their times without interference: no more than with it."""
        return self._outlook.of([pricer.iteration_ns(loads) for pricer in self._pricers])


def _bearing(problem: Problem, deadline: Deadline) -> Iterator[Plan]:
    """Yield plans that may bear more: made for what takes longer, and with more transfers."""
    for left, scenario in enumerate(reversed(LONGER), 1):
        if deadline.passed:
            return
        with suppress(InvalidInputError):  # whose numbers are too large
            plan = solve(
                under(problem, scenario), time_limit=_share(deadline, left), cancel=deadline.cancel
            ).plan
            assert plan is not None
            yield plan
    size = sum(problem.windows.sizes)
    for number in BUCKET_COUNTS:
        limit = -(-size // number)
        with suppress(NotApplicableError, TimeUpError):
            plan = ddp(problem, deadline, (limit, limit)).plan
            assert plan is not None
            yield plan


def _others(
    problem: Problem, start: Plan, plans: Sequence[Plan], deadline: Deadline
) -> Iterator[list[Load]]:
    """Yield what plans send without their barriers, and rules, and every way of few parameters."""
    yield from map(loads_of, (start, *plans))
    yield from map(loads_of, _bearing(problem, deadline))
    for rule in RULES.values():
        with suppress(NotApplicableError, TimeUpError):
            plan = rule(problem, deadline).plan
            assert plan is not None
            yield loads_of(plan)
    sizes = problem.windows.sizes
    if len(sizes) <= ENUMERATED:
        for groups in _ordered_partitions(tuple(range(len(sizes)))):
            yield [tuple((j, sizes[j]) for j in group) for group in groups]


def _ordered_partitions(left: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    """Yield every way to group and to order some parameters."""
    if not left:
        yield []
    for count in range(1, len(left) + 1):
        for group in combinations(left, count):
            rest = tuple(j for j in left if j not in group)
            yield from ([group, *others] for others in _ordered_partitions(rest))
