"""The methods of the family `iteration`, and how their plans are verified.

`joint` (and `auto`) returns the best of all `alternatives`. The other methods are baselines: single
families and other systems on the same cluster (`planner.families.iteration.baselines`).

Guarantee: `joint` is never longer than any other method's plan, except at the time limit. The
bound is the minimum over all allowed algorithms and requested modes, however transfers are cut,
grouped and ordered, for the op order of the plan.
Complexity: that of `alternatives`, or of the method.
Source: own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, Unpack

from planner.families.caramel.baselines import ddp
from planner.families.iteration.alternatives import Alternative, alternatives
from planner.families.iteration.baselines import (
    BASELINES,
    GRADIENTS,
    Rule,
    by_gradients,
    enforced,
    servers,
)
from planner.families.iteration.bounds import bound, tightened_bound
from planner.families.iteration.evaluation import (
    Evaluation,
    check,
    check_room,
    check_times,
    evaluate,
    lasting,
    simplicity,
)
from planner.families.iteration.for_target import within
from planner.families.iteration.measured import notes_of
from planner.families.iteration.plan import BML, MIXED, Plan
from planner.families.iteration.problem import Problem
from planner.families.iteration.synchronisation import cut_off
from planner.families.iteration.transfers import (
    adapt,
    assign_algorithms,
    fewer_transfers,
    improved_start,
    limit_infeasible,
    split_to_limit,
    too_many_transfers,
    with_both,
)
from planner.model.clusters import scaled_cluster
from planner.model.errors import BrokenConstraintError, NotApplicableError
from planner.model.profiles import Profile
from planner.model.units import counted, format_bytes
from planner.model.validation import total
from planner.solving.bucketing import BUCKET_COUNTS
from planner.solving.compare import ACTIVATIONS, IGNORE_MEMORY, Case, Column, Place
from planner.solving.deadline import NEVER, Control, Deadline, TimeUpError
from planner.solving.family import Family
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, named
from planner.solving.plugins import plugged
from planner.solving.result import Infeasibility, Result
from planner.solving.scenarios import Scenario, refuse_changes, scaled_graph

Method: TypeAlias = AnyMethod[Problem, Plan]

JOINT = "joint"
"""Name of the joint method."""


def _joint(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    return _best_of(problem, alternatives(problem, deadline, simple=False), deadline)


def baseline_method(method: str, rule: Rule) -> Method:
    """Return the method that takes a baseline's best plan over today's libraries' algorithms."""

    def run(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        cut = cut_off(problem.cluster)
        if cut is not None:
            return Outcome(None, infeasibility=cut)
        return _first_allowed(problem, method, _plans_of(problem, method, rule, deadline))

    return run


def _best_of(
    problem: Problem, candidates: Iterable[Alternative], deadline: Deadline = NEVER
) -> Outcome[Plan]:
    listed = list(candidates)
    if not listed:
        return Outcome(None, infeasibility=cut_off(problem.cluster))
    priced = [candidate for candidate in listed if candidate.objective_ns is not None]
    timed_out = any(candidate.timed_out for candidate in listed)
    if not priced:
        reasons = [
            candidate.infeasibility for candidate in listed if candidate.infeasibility is not None
        ]
        reason = Infeasibility(
            "; ".join(dict.fromkeys(cause.reason for cause in reasons)),
            tuple(dict.fromkeys(name for cause in reasons for name in cause.binding)),
        )
        return Outcome(None, infeasibility=reason)
    least = min(candidate.objective_ns or 0 for candidate in priced)
    shortest = [option.plan for option in priced if option.plan and option.objective_ns == least]
    plan = min(shortest, key=simplicity)
    if len(shortest) > 1 and not timed_out:
        # One algorithm's transfers may be sent together where another's may not.
        fewer = {plan: fewer_transfers(problem, plan, least, deadline) for plan in shortest}
        plan = min(fewer, key=lambda plan: simplicity(fewer[plan]))
    lowest = min(
        _bound_for(problem, candidate, plan, least)
        for candidate in listed
        if candidate.lower_bound_ns is not None
    )
    return Outcome(plan, lowest, timed_out)


def _bound_for(problem: Problem, alternative: Alternative, plan: Plan, plan_ns: int) -> int:
    """Return an alternative's bound for the op orders of a plan."""
    own, way, mode = alternative.plan, alternative.synchronisation, alternative.mode
    if own is None or own.backward_orders != plan.backward_orders:
        return tightened_bound(problem, way, mode, bound(problem, way, mode, plan), plan_ns, plan)
    return alternative.lower_bound_ns or 0


def _plans_of(problem: Problem, method: str, rule: Rule, deadline: Deadline) -> list[Plan]:
    """Return a baseline's plans, one for each algorithm that it may use, the best first.

    Raises `NotApplicableError` if there is none.
    """
    plans, refused = [], None
    planned: set[object] = set()  # equal costs make equal plans
    for synchronisation in problem.by_name.values():
        if synchronisation.algorithm in BML and method != "bml":
            continue
        price = synchronisation.half, synchronisation.all_reduce
        if price in planned:
            continue
        try:
            plan = assign_algorithms(rule(problem, synchronisation, deadline), synchronisation)
        except NotApplicableError as error:
            refused = error
            continue
        planned.add(price)
        if plan.mode not in problem.modes:
            refused = NotApplicableError("modes", f"the plans of {method} are {plan.mode}")
            continue
        plans.append(plan)
    if not plans:
        needed = dict(problem.left_out).get(method)  # an algorithm excluded by the cluster
        if needed is not None:
            raise NotApplicableError("method", needed)
        raise refused or NotApplicableError(
            "algorithms", "no algorithm that today's libraries have can be used"
        )
    return sorted(plans, key=lambda plan: (evaluate(problem, plan).iteration_ns, simplicity(plan)))


def _first_allowed(problem: Problem, method: str, plans: Iterable[Plan]) -> Outcome[Plan]:
    """Return the first plan that fits into memory."""
    broken: Infeasibility | None = None
    for plan in plans:
        small = limit_infeasible(problem, plan.mode) or too_many_transfers(problem, plan.mode)
        if small is not None:
            broken = broken or small
            continue
        try:
            check_room(problem, plan)
        except BrokenConstraintError as error:
            broken = broken or Infeasibility(
                f"the plan of {method} breaks a constraint ({error}); {JOINT} keeps to it",
                (error.binding,),
            )
            continue
        return Outcome(plan)
    return Outcome(None, infeasibility=broken)


def bound_under(problem: Problem, plan: Plan | None = None, *, brief: bool = False) -> int:
    """Return the lower bound over all requested algorithms and modes (ns); 0 if no mode fits.

    `plan` gives the op orders, by default the problem's; `brief` leaves out bounds that take a
    search.
    """
    bounds = (
        bound(problem, option, mode, plan, brief=brief)
        for mode in problem.modes
        if limit_infeasible(problem, mode) is None
        for option in problem.cheapest
    )
    return min(bounds, default=0)


class _Iteration(Family[Problem, Plan, Evaluation]):
    name, plan_type, baselines = "iteration", Plan, tuple(BASELINES)
    own_methods = {
        "auto": named(JOINT, _joint),
        JOINT: _joint,
        **{
            name: baseline_method(name, rule)
            for name, rule in {**plugged("peers"), **BASELINES}.items()
        },
    }

    bounding = JOINT
    asks = "a whole iteration on a cluster; planner plan says more of it"
    example = "planner compare data/profiles/vgg19.json --problem iteration --cluster caramel-16"
    columns = (
        Column("algorithm", lambda _, plan, __: " + ".join(plan.algorithms), ""),
        Column("mode", lambda _, plan, __: plan.mode, ""),
        Column("transfers", lambda _, plan, __: len(plan.transfers), ","),
        Column.of("iteration", "iteration_ns"),
        Column.of("stalls", "stall_ns"),
    )
    on_cluster = True
    own_options = (ACTIVATIONS, IGNORE_MEMORY)

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        check(problem, plan)
        check_room(problem, plan)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        evaluation = evaluate(problem, plan)
        check_times(problem, plan, evaluation.iteration)
        return evaluation

    def lasting(self, problem: Problem, plan: Plan) -> int:
        return lasting(problem, plan)(problem.costs)

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return total(evaluation.iteration_ns, "cluster", "what an iteration lasts")

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[int, bool]:
        return bound_under(problem, plan, brief=deadline.passed), False

    def methods_for(self, problem: Problem) -> Mapping[str, Method]:
        return self.methods if problem.target is None else within(problem.target)

    def adapt(self, problem: Problem, plan: Plan) -> Plan:
        return adapt(problem, plan)

    def improve(self, problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
        return improved_start(problem, plan, deadline)

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        """Return the problem with the computation, start-ups and bandwidths of a scenario."""
        refuse_changes(scenario, ("shared",), "transfers of an iteration share the network already")
        cluster = scaled_cluster(
            problem.cluster, startup=scenario.startup, bandwidth=scenario.bandwidth
        )
        return replace(problem, graph=scaled_graph(problem.graph, scenario), cluster=cluster)

    def simplest(self, problem: Problem, plan: Plan, most_ns: int, deadline: Deadline) -> Plan:
        """Return a plan with fewer transfers: merge neighbours of one kind, as in `caramel`."""
        if problem.target is None:
            plan = fewer_transfers(problem, plan, most_ns, deadline)
        return super().simplest(problem, plan, most_ns, deadline)

    def transfers(self, plan: Plan) -> int:
        return len(plan.transfers)

    def merged(self, problem: Problem, plan: Plan, place: int) -> Plan | None:
        if problem.target is not None:  # its rules say what is sent together
            return None
        way = next((option for option in problem.options if option.algorithm == plan.way), None)
        return None if way is None else with_both(problem, way, plan, place)

    def fix_order(self, problem: Problem, plan: Plan) -> Problem:
        """Return the problem with the plan's op order."""
        order = (*plan.backward_orders[0], *plan.forward_order)
        return replace(problem, op_order=problem.graph.names_of(order))

    def narrow(self, problem: Problem, plan: Plan) -> Problem:
        """Return the problem with the plan's algorithm and mode only."""
        single = plan.way != MIXED and plan.way in problem.algorithms
        algorithms = (plan.way,) if single else problem.algorithms
        return replace(problem, algorithms=algorithms, modes=(plan.mode,))

    def same_bound(self, plan: Plan, other: Plan) -> bool:
        return plan.backward_orders == other.backward_orders

    def candidates(
        self, problem: Problem, plans: Sequence[Plan], deadline: Deadline
    ) -> Iterator[Plan]:
        """Yield plans with the usual plan's algorithm: simple rules first, then for scenarios."""
        start, *made = plans
        way = next(option for option in problem.options if option.algorithm == start.way)
        rules: list[Rule] = [servers]
        if start.mode == "replicated":
            limits = (max(-(-sum(problem.pushed) // count), 1) for count in BUCKET_COUNTS)
            buckets = (by_gradients(partial(ddp, limits=(limit, limit))) for limit in limits)
            rules = [*GRADIENTS.values(), *buckets]
        for rule in rules:
            if deadline.passed:
                return
            with suppress(NotApplicableError, TimeUpError):
                sent = rule(problem, way, deadline).transfers
                together = (replace(transfer, not_before_ns=0) for transfer in sent)
                plan = enforced(problem, way.algorithm, together)
                yield assign_algorithms(split_to_limit(problem, plan), way)
        yield from (assign_algorithms(plan, way) for plan in made)

    def ddp_price(
        self, problem: Problem, limits: tuple[int, int], deadline: Deadline
    ) -> int | None:
        """Return DDP's iteration time by the best algorithm of today's libraries."""
        rule = by_gradients(partial(ddp, limits=limits))
        plan = baseline_method("ddp", rule)(problem, deadline).plan
        return None if plan is None else evaluate(problem, plan).iteration_ns

    def sending_ns(self, problem: Problem) -> int | None:
        return problem.interference.sending_ns(sum(problem.pushed))

    def about(self, case: Case[Problem]) -> tuple[str, ...]:
        cluster, sizes = case.problem.cluster, case.problem.pushed
        request = "" if case.request is None else "request: "
        where = f"{case.title} on {cluster.name}: {counted(cluster.workers, 'worker')}"
        sent = f"{format_bytes(sum(sizes))} of gradients in {counted(len(sizes), 'parameter')}"
        return (f"{request}{where}, {sent}",)

    def caveats(self, problem: Problem, plan: Plan) -> Sequence[str]:
        return notes_of(problem.cluster, plan)

    def collective(self, options: Mapping[str, Any]) -> str | None:
        return "all_reduce"

    def from_profile(self, profile: Profile, place: Place, options: Mapping[str, Any]) -> Problem:
        assert place.cluster is not None
        return Problem.from_profile(
            profile,
            place.cluster,
            activation_bytes=options["activations"],
            ignore_memory=options["ignore_memory"],
        )


ITERATION = _Iteration()
METHODS = ITERATION.methods
solve = ITERATION.solve


def solve_all(
    problem: Problem,
    *,
    time_limit: float | Deadline | None = None,
    progress: Callable[[str], None] | None = None,
    **control: Unpack[Control[Plan]],
) -> tuple[Result[Plan, Evaluation], tuple[Alternative, ...]]:
    """Return the joint plan, as `solve` does, and the alternatives it was chosen from.

    The problem has no target. `progress` is called with the name of each alternative before it is
    planned.
    """
    listed: list[Alternative] = []

    def run(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        listed.extend(alternatives(problem, deadline, progress))
        return _best_of(problem, listed, deadline)

    deadline = Deadline.of(time_limit, control.get("cancel"))
    result = ITERATION.run(
        problem,
        JOINT,
        {JOINT: run},
        deadline,
        control.get("on_progress"),
        control.get("start"),
        control.get("tie_break", "simple"),
    )
    return result, tuple(listed)


def best_of(
    problem: Problem, candidates: Iterable[Alternative], runtime_s: float
) -> Result[Plan, Evaluation]:
    """Return the best alternative as a result; ties go to the simplest plan.

    They took `runtime_s` seconds.
    """
    outcome = replace(_best_of(problem, candidates), method=JOINT)
    return ITERATION.verify(problem, outcome, runtime_s)
