"""The iBatch family: how plans are checked, priced, bounded, perturbed, and described."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from planner.families.ibatch.bounds import contention_relaxation, relaxation
from planner.families.ibatch.evaluation import (
    Evaluation,
    check,
    contended_durations,
    evaluate,
    objective_ns,
)
from planner.families.ibatch.makespan import robust, sweep
from planner.families.ibatch.methods import (
    BASELINES,
    OWN_METHODS,
    Method,
    check_modules,
    default,
    exact,
    within_cap,
)
from planner.families.ibatch.problem import COLLECTIVES, Plan, Problem
from planner.model.costs import scaled_cost
from planner.model.errors import InvalidInputError
from planner.model.profiles import Profile
from planner.model.units import format_bytes, format_ns
from planner.solving.bucketing import BUCKET_COUNTS
from planner.solving.compare import FOR, Case, Column, Comparison, Option, Place
from planner.solving.contention import plan_with_contention, with_contention
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.methods import Outcome, without_auto
from planner.solving.scenarios import Scenario, refuse_changes, scaled_times
from planner.solving.targets import target_of
from planner.solving.tie_break import NOMINAL, Limit

BOUND_MAX_LAYERS = 1024
"""Up to this many layers the quadratic exact methods bound other plans, and improve old ones."""

FEWEST_WORK = 10**8
"""Up to this many steps (a second) the fewest batches are found exactly, if costs do not add up."""

BESIDE = 10
"""Up to this many layers (512 plans) every plan is priced under contention."""

PRICED = 2 * 10**5
"""Layers of the plans priced at most while a plan is improved over scenarios."""

CROSS_CHECKS = ("milp", "cpsat")
"""Methods that only confirm what `exact` finds, and take seconds on long chains."""

CROSS_CHECK_MAX_UNITS = 32
"""Largest number of units for which cross-checks are compared by default."""


class _Ibatch(Family[Problem, Plan, Evaluation]):
    name, plan_type, baselines = "ibatch", Plan, tuple(BASELINES)
    own_methods = OWN_METHODS

    asks = "which layers to send in one batch; what a profile is asked by default"
    example = "planner compare data/profiles/vgg19.json --startup 100us --bandwidth 10Gb/s"
    columns = (
        Column("batches", lambda _, plan, __: len(plan.batches), ","),
        Column.of("makespan", "makespan_ns"),
        Column.of("exposed comm.", "exposed_communication_ns"),
        Column.of("overlap", "overlap_ns"),
    )
    own_options = (
        Option(
            "--direction pull|push",
            "pull: parameters before the forward pass (default); push: gradients after backward",
            "pull",
        ),
        Option(
            "--objective makespan|eq4",
            "the real makespan (default), or the iBatch paper's Eq. 4 under its Eq. 5",
            "makespan",
        ),
        Option("--max-batch SIZE", "cap on the size of a batch: 64MiB", least=1),
        FOR,
    )

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        check(problem, plan)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        return evaluate(problem, plan)

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return objective_ns(problem, evaluation)

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[int, bool]:
        """Return the optimum where it is cheap to compute, otherwise a relaxation."""
        least = contention_relaxation(
            problem
        )  # contention only delays events: bounds without it hold too
        additive = problem.objective == "makespan" and problem.transfer_prefix is not None
        if not additive and problem.layers > BOUND_MAX_LAYERS:
            return max(least, relaxation(problem)), False
        proof = exact(problem, deadline)
        bound = proof.lower_bound
        bound = relaxation(problem) if bound is None else int(bound)
        return max(least, bound), proof.timed_out

    def methods_for(self, problem: Problem) -> Mapping[str, Method]:
        methods = self.methods
        if not problem.interference.is_none:
            methods = with_contention(methods, "exact", within_cap(self._contended))
        return methods if problem.target is None else {**methods, problem.target.name: default}

    def _contended(self, problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        """Return the best plan found under contention: the optimum up to `BESIDE` layers.

        Otherwise, unless time runs out, it is no longer than any baseline's plan or the optimal
        plan without contention.
        """
        if problem.layers <= BESIDE:
            best = min(problem.every_plan(), key=partial(self.lasting, problem))
            return Outcome(best, self.lasting(problem, best))
        others, least = (exact, *BASELINES.values()), contention_relaxation(problem)
        return plan_with_contention(self, problem, exact, others, least, deadline)

    def slowdown(self, problem: Problem, plan: Plan) -> tuple[Mapping[str, Any], int, int]:
        transfers, slower = contended_durations(problem, plan)
        alone = sum(problem.transfer_time(start, stop) for start, stop in plan.batches)
        return {"compute_ns": tuple(slower)}, sum(transfers), alone

    def improve(self, problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
        """Return the best plan if an exact method takes milliseconds, otherwise the start plan."""
        check(problem, plan)
        free = problem.interference.is_none and problem.target is None
        additive = problem.transfer_prefix is not None
        quick = additive or problem.layers <= BOUND_MAX_LAYERS
        if problem.objective != "makespan" or not free or not quick:
            return Outcome(plan)
        outcome = exact(problem, deadline)
        assert outcome.plan is not None
        better = self.lasting(problem, outcome.plan) < self.lasting(problem, plan)
        fewest = additive and not outcome.timed_out  # the exact plan has the fewest batches
        return outcome if better or fewest else replace(outcome, plan=plan)

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        refuse_changes(scenario, ("shared",), "ibatch has one channel")
        times, spreads = problem.compute_ns, problem.spread_ns or (0,) * problem.layers
        if problem.direction == "pull":
            times = scaled_times(times, spreads, "forward", scenario)
        else:
            times = scaled_times(times[::-1], spreads[::-1], "backward", scenario)[::-1]
        other = replace(problem, compute_ns=times)
        if problem.cost is not None:
            rate = 1 / scenario.bandwidth
            cost = scaled_cost(problem.cost, startup=scenario.startup, rate=rate)
            return replace(other, cost=cost)
        assert problem.startup_ns is not None
        assert problem.transfer_ns is not None
        return replace(
            other,
            startup_ns=round(problem.startup_ns * scenario.startup),
            transfer_ns=tuple(round(time / scenario.bandwidth) for time in problem.transfer_ns),
        )

    def transfers(self, plan: Plan) -> int:
        return len(plan.batches)

    def merged(self, problem: Problem, plan: Plan, place: int) -> Plan | None:
        first, second = plan.batches[place : place + 2]
        both = min(first[0], second[0]), max(first[1], second[1])
        if both[1] > problem.reach(both[0]):
            return None
        return Plan((*plan.batches[:place], both, *plan.batches[place + 2 :]))

    def simplest(self, problem: Problem, plan: Plan, most_ns: int, deadline: Deadline) -> Plan:
        """Return the plan with the fewest batches within a makespan."""
        if problem.objective != "makespan" or not problem.interference.is_none:
            return super().simplest(problem, plan, most_ns, deadline)
        if problem.transfer_prefix is not None:
            boundaries, _ = sweep(problem, (), Limit(NOMINAL, most_ns))
        elif problem.layers**2 * len(plan.batches) > FEWEST_WORK:
            return super().simplest(problem, plan, most_ns, deadline)
        else:
            from planner.families.ibatch.dynamic import fewest

            boundaries = fewest(problem, most_ns, len(plan.batches), deadline)
        fewer = boundaries is not None and len(boundaries) <= len(plan.batches)
        return problem.plan(boundaries) if boundaries and fewer else plan

    def most_robust(self, problem: Problem, plan: Plan, deadline: Deadline) -> Plan:
        """Return a plan of equal makespan that is no more sensitive to delays."""
        if problem.objective != "makespan" or not problem.interference.is_none:
            return plan  # `robust` prices without contention
        return robust(problem, plan, deadline)

    def fix_order(self, problem: Problem, plan: Plan) -> Problem:
        """Return the problem unchanged, as layers have a fixed order; refuse objective eq4."""
        if problem.objective != "makespan":
            raise InvalidInputError("objective", "scenarios are planned for by the makespan")
        return problem

    def candidates(
        self, problem: Problem, plans: Sequence[Plan], deadline: Deadline
    ) -> Iterator[Plan]:
        """Yield plans of about equal batches."""
        count = problem.layers
        for number in BUCKET_COUNTS:
            if number < count:
                yield problem.plan([place * count // number for place in range(number + 1)])

    def neighbours(
        self, problem: Problem, variants: Sequence[Problem], plan: Plan
    ) -> Iterator[Plan]:
        """Yield plans with one boundary added, removed, or moved by a layer."""
        count = problem.layers
        known = {start for start, _ in plan.batches} - {0}
        for place in range(1, count):
            changed = [known ^ {place}]
            if place in known:
                moved = (place - 1, place + 1)
                changed += [
                    known - {place} | {to} for to in moved if 0 < to < count and to not in known
                ]
            for inner in changed:
                yield problem.plan((0, *sorted(inner), count))

    def budget(self, problem: Problem, plan: Plan) -> int:
        return PRICED // problem.layers

    def summary(self, problem: Problem) -> str:
        size = problem.layer_bytes and f"{format_bytes(sum(problem.layer_bytes))} to send, "
        computed = format_ns(problem.compute_prefix[-1])
        return f"{problem.direction}: {problem.layers} layers, {size or ''}{computed} to compute"

    def about(self, case: Case[Problem]) -> tuple[str, ...]:
        return (f"{case.name}, {self.summary(case.problem)}",)

    def compared(self, case: Case[Problem]) -> Sequence[str]:
        """Return the methods to compare: a target's default too, but no slow cross-check."""
        left_out = () if case.problem.layers <= CROSS_CHECK_MAX_UNITS else CROSS_CHECKS
        return [
            name for name in without_auto(self.methods_for(case.problem)) if name not in left_out
        ]

    def notes(self, case: Case[Problem], comparison: Comparison[Plan, Any]) -> Sequence[str]:
        known = {*self.compared(case), *(row.method for row in comparison.rows)}
        methods, units = without_auto(self.methods_for(case.problem)), case.problem.layers
        left_out = [name for name in methods if name not in known]
        return [f"left out: {it} ({units} units; --methods {it} runs it)" for it in left_out]

    def sent_bytes(self, problem: Problem, plan: Plan) -> Sequence[int]:
        sizes = problem.layer_bytes
        return () if sizes is None else [sum(sizes[start:stop]) for start, stop in plan.batches]

    def collective(self, options: Mapping[str, Any]) -> str | None:
        return COLLECTIVES[options["direction"]]

    def check_profile(self, profile: Profile) -> None:
        profile.chain()

    def from_profile(self, profile: Profile, place: Place, options: Mapping[str, Any]) -> Problem:
        chain = profile.chain()
        problem = Problem.from_profile(
            chain,
            place.network,
            direction=options["direction"],
            objective=options["objective"],
            max_batch_bytes=options["max_batch"],
            interference=place.interference,
            target=target_of(options["for"], "--for"),
        )
        if problem.target is not None:
            check_modules(chain.layer_parameters(), problem.target)
        return problem


IBATCH = _Ibatch()
METHODS = IBATCH.methods
solve = IBATCH.solve
