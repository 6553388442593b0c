"""Regret of a plan if the real numbers differ from the assumed, and plans for several scenarios.

Problem: a plan is made for one table of times, but the real times differ. What does the plan cost
(`regrets`), and which plan costs least over weighted scenarios (`robust_plan`)?
Method: a scenario is a problem of the same family. `robust_plan` starts from the plans of all
scenarios, in the op order of the usual plan. At nominal numbers its plan costs at most
`Family.max_loss` times as much as the usual plan.
Guarantee: regret lies between `Regret.at_least` and `Regret.at_most`. A robust plan is never worse
over the scenarios than the usual one. Neither a mean nor a percentile falls if a time rises, so the
scenarios' own bounds make its bound. Complexity: a run of ``auto`` and some rules a scenario, each
in an equal share of the time; `Family.budget` prices more. Source: own; regret is Savage's (JASA
1951), sample averages are Kleywegt, Shapiro, Homem-de-Mello's (SIAM J. Optim. 12, 2002).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from operator import itemgetter
from typing import Any, Generic, TypeAlias

from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.model.validation import inside
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.family import Family
from planner.solving.local_search import local_search
from planner.solving.methods import Outcome
from planner.solving.result import EvaluationT, PlanT, ProblemT, Result
from planner.solving.scenarios import (
    SLOWER,
    ExpectedCost,
    Scenario,
    ScenarioSet,
)

Progress: TypeAlias = Callable[[str], None]
"""Receives a text before each step."""

DDP, LAYERS = "ddp", "layer_by_layer"
"""Rules whose regret is shown with that of a plan."""

FACTOR_BITS = 10
"""Break-even factors up to 2^10 either way are found."""

ROUNDS = 10
"""Halvings of the interval of break-even factors: three digits."""


@dataclass(frozen=True, slots=True)
class Regret(Generic[PlanT]):
    """The cost of a plan in one scenario, and the costs of other plans."""

    scenario: Scenario  # the perturbed numbers
    plan_ns: int  # cost of the plan, unchanged
    best: PlanT  # the best plan found for the scenario
    best_ns: int  # its cost; at most `plan_ns`
    bound_ns: int | None  # lower bound over all plans, at most `best_ns`, if known
    ddp_ns: int | None  # cost of DDP's default buckets, where they apply
    layers_ns: int | None  # and of layer by layer

    @property
    def factor(self) -> Fraction:
        """The factor of a scenario that multiplies one number only."""
        scenario = self.scenario
        return scenario.computation * scenario.startup * scenario.bandwidth

    @property
    def at_least(self) -> Fraction:
        """Cost of the plan over that of the best plan found; at least the ratio to the optimum."""
        return _ratio(self.plan_ns, self.best_ns)

    @property
    def at_most(self) -> Fraction | None:
        """Cost of the plan over the bound; None without a bound."""
        if self.plan_ns == self.bound_ns:
            return Fraction(1)
        return Fraction(self.plan_ns, self.bound_ns) if self.bound_ns else None


Planned: TypeAlias = tuple[Iterable[tuple[int, PlanT]], int | None]
"""New plans for a problem with their costs, and a lower bound over all plans (ns), if known."""


def regrets(
    family: Family[ProblemT, PlanT, EvaluationT],
    problem: ProblemT,
    plan: PlanT,
    deadline: Deadline,
    progress: Progress | None = None,
    scenarios: Iterable[Scenario] | None = None,
    *,
    known: Iterable[PlanT] = (),
    again: Callable[[ProblemT, int, Deadline], Planned[PlanT]] | None = None,
    rules: Sequence[str] = (DDP, LAYERS),
) -> tuple[Regret[PlanT], ...]:
    """Return the regret of a plan in each scenario, by default in those of the family.

    Scenarios for which no time is left, whose numbers are too large, or in which the plan breaks a
    constraint, are left out. `progress` is called before each. `known` are more plans to price in
    every scenario. `again` returns new plans for a problem, given the least cost known; by default
    those of ``auto``. `rules` names the rules to price, of `DDP` and `LAYERS`.
    """
    listed = list(family.scenarios if scenarios is None else scenarios)
    others = list(known)

    def solved(problem: ProblemT, method: str, limit: Deadline) -> Planned[PlanT]:
        made = None
        if method in family.methods_for(problem):
            with suppress(NotApplicableError):
                made = family.solve(problem, method=method, time_limit=limit, tie_break=None)
        if made is None or made.plan is None or made.objective_ns is None:
            return (), None
        return ((made.objective_ns, made.plan),), made.lower_bound_ns

    def rows() -> Iterator[Regret[PlanT]]:
        for number, scenario in enumerate(listed):
            if deadline.passed:
                return
            if progress:
                progress(f"scenario {number + 1} of {len(listed)}")
            limit_s = deadline.share(len(listed) - number).remaining_s
            with suppress(InvalidInputError, TimeUpError):
                other = family.perturb(problem, scenario)
                here = family.repriced(other, plan)
                kept = family.price(other, here, deadline)
                priced = [(kept, here)]
                for here in _repriced(family, other, others):
                    with suppress(InvalidPlanError):  # such as one that breaks a constraint there
                        priced.append((family.price(other, here), here))
                limit = Deadline(limit_s, deadline.cancel)
                if again is None:
                    made, bound = solved(other, "auto", limit)
                else:
                    made, bound = again(other, min(priced, key=itemgetter(0))[0], limit)
                priced += made
                told: dict[str, int | None] = {}
                for rule in rules:
                    of_baselines, _ = solved(other, rule, Deadline(limit_s, deadline.cancel))
                    priced += of_baselines
                    told[rule] = next((cost for cost, _ in of_baselines), None)
                best_ns, best = min(priced, key=itemgetter(0))
                bound = None if bound is None else min(bound, best_ns)
                yield Regret(scenario, kept, best, best_ns, bound, told.get(DDP), told.get(LAYERS))

    return tuple(rows())


def break_even(better: Callable[[Fraction], bool], deadline: Deadline) -> Fraction | None:
    """Return the factor nearest to 1, on a logarithmic scale, at which another plan is better.

    `better` returns whether the other plan is better at a factor. Powers of two up to 2^10 either
    way are tried, then bisection; None if no factor is found in time. If `better` changes more
    than once on a side of 1, one change up to the first power of two that is better is returned.
    """
    for power in range(1, FACTOR_BITS + 1):
        factors = []
        for way in (Fraction(2), Fraction(1, 2)):
            if deadline.passed:
                return None
            near, far = way ** (power - 1), way**power
            if not better(far):
                continue
            for _ in range(ROUNDS):
                middle = (near + far) / 2
                near, far = (near, middle) if better(middle) else (middle, far)
            factors.append(far)
        if factors:
            return min(factors, key=lambda factor: max(factor, 1 / factor))
    return None


def robust_plan(
    family: Family[ProblemT, PlanT, EvaluationT],
    problem: ProblemT,
    scenario_set: ScenarioSet,
    deadline: Deadline,
    usual: Result[PlanT, EvaluationT] | None = None,
    others: Iterable[PlanT] = (),
) -> tuple[Result[PlanT, EvaluationT], ExpectedCost | None]:
    """Return the plan with the least mean, or percentile, over weighted scenarios.

    The problem and the result have the nominal numbers; the prospect, None without a plan, says
    what the plan costs in the scenarios. `usual` is the result for the nominal numbers, made if it
    is not given, and `others` are more plans to choose from. InvalidInputError if the numbers of a
    scenario are too large.
    """
    begin, parts = time.perf_counter(), len(scenario_set.scenarios) + len(SLOWER) + 2
    perturbed = []
    for place, (scenario, _) in enumerate(scenario_set.scenarios):  # may be refused
        with inside(f"scenarios[{place}]"):
            perturbed.append(family.perturb(problem, scenario))
    if usual is None:
        slow = family.quick(problem) == "auto"  # then scenarios take as much time
        usual = family.solve(problem, time_limit=deadline.share(parts if slow else 2))
    if usual.plan is None or usual.objective_ns is None:
        return usual, None
    fixed, most_ns = family.fix_order(problem, usual.plan), family.max_loss * usual.objective_ns
    variants = [family.fix_order(variant, usual.plan) for variant in perturbed]
    start = scenario_set.of([family.lasting(variant, usual.plan) for variant in variants])

    def value(plan: PlanT) -> Fraction | None:
        """Return a plan's mean or percentile; None if the plan is invalid or costs too much."""
        if plan is usual.plan:
            return start
        try:
            family.check(problem, plan, deadline)
            if family.lasting(problem, plan) > most_ns:
                return None
        except (InvalidPlanError, TimeUpError):
            return None
        return scenario_set.of([family.lasting(variant, plan) for variant in variants])

    quick = family.quick(problem)
    made, bounds, narrowed = [], [0] * len(variants), False
    for place, variant in enumerate(variants):
        if deadline.passed:
            break
        narrow = family.narrow(variant, usual.plan)
        narrowed |= narrow is not variant
        share = deadline.share(parts - 1 - place)
        own = family.solve(narrow, method=quick, time_limit=share, tie_break=None)
        bounds[place] = own.lower_bound_ns or 0
        if own.plan is not None:
            made.append(own.plan)

    candidates = chain(others, made, _first(family, fixed, usual.plan, made, deadline))
    first = _repriced(family, problem, candidates)
    bound = Fraction(0) if narrowed else scenario_set.of(bounds)
    best, least = local_search(
        usual.plan,
        value,
        first,
        lambda plan: family.neighbours(fixed, variants, plan),
        bound=bound,
        target=bound + bound / family.near if family.near else bound,
        budget=lambda plan: family.budget(fixed, plan) // len(variants),
        deadline=deadline,
    )
    if narrowed or not all(bounds):  # bounds over fewer choices do not hold for all
        again = scenario_set.of([_bounded(family, variant, best, deadline) for variant in variants])
        bound = max(bound, again)
    prospect = ExpectedCost(Fraction(least), min(bound, Fraction(least)), usual.objective_ns, start)
    passed = time.perf_counter() - begin
    if best == usual.plan:
        late = usual.timed_out or deadline.passed
        return replace(usual, runtime_s=passed, timed_out=late), prospect
    timed_out = usual.timed_out or deadline.passed
    fixed_bound = usual.lower_bound_ns if family.same_bound(usual.plan, best) else None
    outcome = Outcome(best, fixed_bound, timed_out, method=usual.method)
    return family.verify(problem, outcome, passed), prospect


def _first(
    family: Family[ProblemT, PlanT, EvaluationT],
    fixed: ProblemT,
    usual: PlanT,
    made: list[PlanT],
    deadline: Deadline,
) -> Iterator[PlanT]:
    """Yield plans for longer computation or longer transfers, and the family's candidates."""
    plans = [usual, *made]
    for left, scenario in enumerate(reversed(SLOWER), 1):
        if deadline.passed:
            return
        with suppress(InvalidInputError):  # the numbers are too large
            longer = family.narrow(family.perturb(fixed, scenario), usual)
            share = deadline.share(left + 1)
            method = family.quick(longer)
            plan = family.solve(longer, method=method, time_limit=share, tie_break=None).plan
            if plan is not None:
                plans.append(plan)
                yield plan
    yield from family.candidates(fixed, plans, deadline)


def _repriced(
    family: Family[ProblemT, PlanT, EvaluationT], problem: ProblemT, plans: Iterable[PlanT]
) -> Iterator[PlanT]:
    """Yield plans of scenarios with the nominal prices."""
    for plan in plans:
        with suppress(InvalidInputError):
            yield family.repriced(problem, plan)


def _bounded(
    family: Family[ProblemT, PlanT, Any], variant: ProblemT, plan: PlanT, deadline: Deadline
) -> int:
    with suppress(TimeUpError):
        bound, _ = family.bound(variant, plan, deadline)
        return 0 if bound is None else int(bound)
    return 0


def _ratio(above: int, below: int) -> Fraction:
    return Fraction(above, below) if below else Fraction(1)
