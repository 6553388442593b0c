"""The methods of the family `caramel`, and how their plans are verified.

`auto` is `search`: it starts from the plans of all other methods and improves them
(`planner.families.caramel.search`), and lets the exact methods finish on few parameters. If no op
order is given it plans for two, the activation order and the mirrored order, and takes the better
plan; its bound holds for the op order of that plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from planner.families.caramel.baselines import ddp
from planner.families.caramel.bounds import NEAR, lower_bound
from planner.families.caramel.checker import check, check_times
from planner.families.caramel.descent import less_sensitive, neighbours
from planner.families.caramel.evaluation import (
    Evaluation,
    duration_ns,
    evaluate,
    lasting_ns,
    plan_heads,
)
from planner.families.caramel.for_target import (
    BUCKETS,
    broken_rule,
    least_ns,
    within,
)
from planner.families.caramel.methods import (
    BASELINES,
    EXACT_PARAMETERS,
    OWN_METHODS,
    Method,
    search,
)
from planner.families.caramel.pricing import (
    LoadPricer,
    is_free,
    loads_of,
    merged,
    merged_loads,
    plan_of,
)
from planner.families.caramel.problem import Plan, Problem
from planner.families.caramel.search import BUDGET, adapt, improved_start
from planner.families.caramel.windows import windows
from planner.model.contention import contention_bound
from planner.model.costs import scaled_cost
from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.model.profiles import Profile
from planner.model.units import counted, format_bytes, format_ns
from planner.model.validation import integer, total
from planner.solving.bucketing import BUCKET_COUNTS
from planner.solving.compare import FOR, Case, Column, Option, Place
from planner.solving.contention import plan_with_contention, slowed, with_contention
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.family import Family
from planner.solving.methods import Outcome
from planner.solving.scenarios import Scenario, refuse_changes, scaled_graph
from planner.solving.targets import target_of

PRICED = 2 * 10**6
"""Transfers priced at most while a plan is improved over scenarios."""

WORKERS = 8
"""Default number of workers, if neither a cluster nor a network says how many."""


_WORKERS = Option(
    "--workers N",
    "workers of the all-reduce: each moves 2(N-1)/N bytes per byte; default: as many as --network "
    f"was measured among, or {WORKERS}",
)
_SERVERS = Option("--servers N", "servers of method ps; default: as many as workers")


def _cuts(plan: Plan) -> bool:
    """Return whether a parameter travels in several parts."""
    parts = [part.parameter for group in plan.groups for part in group.parts]
    return len(set(parts)) < len(parts)


class _Caramel(Family[Problem, Plan, Evaluation]):
    name, plan_type, baselines = "caramel", Plan, tuple(BASELINES)
    near = NEAR
    bounding = "search"
    asks = "which gradients to send together, and when, between workers; of a profile"
    example = (
        "planner compare data/profiles/resnet50.json --problem caramel --workers 8 "
        "--startup 50us --bandwidth 10Gb/s"
    )
    columns = (
        Column("groups", lambda _, plan, __: len(plan.groups), ","),
        Column.of("iteration", "iteration_ns"),
        Column.of("stalls", "stall_ns"),
        Column.of("overlap", "overlap", ".1%"),
        Column.of("utilisation", "utilisation", ".1%"),
    )
    own_options = (
        _WORKERS,
        _SERVERS,
        Option(
            "--seed N",
            "seed of the op orders of methods that enforce none; default: 0",
            0,
            least=0,
        ),
        FOR,
    )
    own_methods = OWN_METHODS

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        check(problem, plan)
        broken = None if problem.target is None else broken_rule(problem, problem.target, plan)
        if broken is not None:
            raise InvalidPlanError("target", broken)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        evaluation = evaluate(problem, plan)
        check_times(problem, plan, evaluation.iteration)
        return evaluation

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return total(evaluation.iteration_ns, "network", "what an iteration lasts")

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[int, bool]:
        """Return a bound for the op orders of the plan, and for the rules of a target."""
        if problem.target is not None and problem.interference.is_none:
            least = least_ns(problem, deadline)
            if least is not None:
                return least, False
        known = replace(problem.windows, heads=plan_heads(problem.graph, plan))
        least = lower_bound(known, problem.cost)
        if problem.interference.is_none:
            return least, False
        apart = min(known.heads) + min(known.tails)
        slowed = contention_bound(
            problem.interference, known.compute_ns, apart, problem.cost, known.sizes
        )
        return max(least, slowed), False

    def methods_for(self, problem: Problem) -> Mapping[str, Method]:
        if problem.target is not None:
            return within(problem.target)
        if problem.interference.is_none:
            return self.methods
        return with_contention(self.methods, "search", self._contended)

    def _contended(self, problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        """Return the best plan found under contention, starting from the plans of all methods.

        It is never longer than the plan of any method that ignores contention, except at the time
        limit.
        """
        others = (OWN_METHODS[other] for other in ("exact", "exact_split", *BASELINES))
        known = problem.windows
        least = contention_bound(
            problem.interference, known.compute_ns, 0, problem.cost, known.sizes
        )
        return plan_with_contention(self, problem, search, others, least, deadline)

    def slowdown(self, problem: Problem, plan: Plan) -> tuple[Mapping[str, Any], int, int]:
        evaluation = evaluate(problem, plan)
        order = (*plan.backward_orders[0], *plan.forward_order)
        graph = slowed(problem.graph, order, evaluation.iteration)
        alone = sum(duration_ns(problem, group, plan.traffic) for group in plan.groups)
        fields = {"graph": graph, "op_order": problem.graph.names_of(order)}
        return fields, evaluation.communication_ns, alone

    def adapt(self, problem: Problem, plan: Plan) -> Plan:
        return adapt(problem, plan)

    def improve(self, problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
        return improved_start(problem, plan, deadline)

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        refuse_changes(scenario, ("shared",), "caramel has one channel")
        rate = 1 / scenario.bandwidth
        cost = scaled_cost(problem.cost, startup=scenario.startup, rate=rate)
        return replace(problem, graph=scaled_graph(problem.graph, scenario), cost=cost)

    def transfers(self, plan: Plan) -> int:
        return len(plan.groups)

    def merged(self, problem: Problem, plan: Plan, place: int) -> Plan | None:
        return merged(problem, plan, place)

    def simplest(self, problem: Problem, plan: Plan, most_ns: int, deadline: Deadline) -> Plan:
        """Return a plan with fewer transfers; for few parameters, the fewest that cut none."""
        if not is_free(problem, plan):
            if most_ns == lasting_ns(problem, plan):
                return plan  # planning under a target's rules or contention has merged already
            return super().simplest(problem, plan, most_ns, deadline)
        pricer = LoadPricer(windows(problem.graph, *plan.order), problem.cost)
        loads = merged_loads(pricer, loads_of(plan), most_ns)
        # Even two transfers may become one: a table's cost need not grow with the size.
        if len(loads) > 1 and len(pricer.windows.sizes) <= EXACT_PARAMETERS:
            from planner.families.caramel.exact_whole import fewest_whole

            fewer = fewest_whole(pricer.windows, problem.cost, most_ns, len(loads), deadline)
            loads = loads if fewer is None else fewer
        if len(loads) == len(plan.groups):
            return plan
        made = plan_of(problem, plan.order, loads)
        return made if lasting_ns(problem, made) <= most_ns else plan

    def most_robust(self, problem: Problem, plan: Plan, deadline: Deadline) -> Plan:
        """Return a plan that is at most as sensitive to delays, by local search."""
        if not is_free(problem, plan):
            return plan
        pricer = LoadPricer(windows(problem.graph, *plan.order), problem.cost)
        old = loads_of(plan)
        loads = less_sensitive(pricer, old, BUDGET, deadline)
        return plan if loads == old else plan_of(problem, plan.order, loads)

    def fix_order(self, problem: Problem, plan: Plan) -> Problem:
        """Return the problem with the plan's op order."""
        order = plan.order
        names = problem.graph.names_of((*order.backward, *order.forward))
        return replace(problem, op_order=names)

    def candidates(
        self, problem: Problem, plans: Sequence[Plan], deadline: Deadline
    ) -> Iterator[Plan]:
        """Yield plans without their barriers, and DDP's buckets."""
        order = problem.order
        for plan in plans:
            yield plan_of(problem, order, loads_of(plan))
        for number in BUCKET_COUNTS:
            limit = -(-sum(problem.windows.sizes) // number)
            with suppress(NotApplicableError, TimeUpError):
                made = ddp(problem, deadline, (limit, limit)).plan
                assert made is not None
                yield plan_of(problem, order, loads_of(made))

    def neighbours(
        self, problem: Problem, variants: Sequence[Problem], plan: Plan
    ) -> Iterator[Plan]:
        """Yield plans with changed transfers that may help in some scenario."""
        loads = loads_of(plan)
        for variant in variants:
            for changed in neighbours(LoadPricer(variant.windows, variant.cost), loads):
                yield plan_of(problem, problem.order, changed)

    def budget(self, problem: Problem, plan: Plan) -> int:
        known, loads = problem.windows, loads_of(plan)
        budget = PRICED // max(len(loads), len(known.sizes), 1)
        return LoadPricer(known, problem.cost).looks(budget, loads)

    def same_bound(self, plan: Plan, other: Plan) -> bool:
        """Return whether op orders agree; a bound over whole parameters covers no cut ones."""
        same = plan.backward_orders == other.backward_orders
        return (
            same and plan.forward_order == other.forward_order and (_cuts(plan) or not _cuts(other))
        )

    def lasting(self, problem: Problem, plan: Plan) -> int:
        return lasting_ns(problem, plan)

    def ddp_price(
        self, problem: Problem, limits: tuple[int, int], deadline: Deadline
    ) -> int | None:
        plan = ddp(problem, deadline, limits).plan
        return None if plan is None else lasting_ns(problem, plan)

    def sending_ns(self, problem: Problem) -> int | None:
        return problem.interference.sending_ns(sum(problem.windows.sizes))

    def summary(self, problem: Problem) -> str:
        graph = problem.graph
        size = format_bytes(sum(parameter.size_bytes for parameter in graph.parameters))
        return (
            f"{counted(len(graph.parameters), 'parameter')}, {size} of gradients, "
            f"{counted(len(graph.ops), 'op')}, {format_ns(problem.windows.compute_ns)} to compute"
        )

    def about(self, case: Case[Problem]) -> tuple[str, ...]:
        lines, typed = super().about(case), case.place is not None and not case.place.path
        workers = counted(case.problem.workers, "worker")
        return (*lines, f"all-reduces among {workers}") if typed else lines

    def compared(self, case: Case[Problem]) -> Sequence[str]:
        """Return the methods to compare; for a target its best plan and its default plan."""
        target = case.problem.target
        return self.names() if target is None else (BUCKETS, target.name)

    def sent_bytes(self, problem: Problem, plan: Plan) -> Sequence[int]:
        return [group.size_bytes for group in plan.groups]

    def collective(self, options: Mapping[str, Any]) -> str | None:
        return "all_reduce"

    def resolved_options(self, options: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
        workers, servers, name = options["workers"], options["servers"], _WORKERS.name
        if place.cluster is not None:
            workers = place.machines(workers, _WORKERS)
        elif workers is None:
            workers = place.ranks or WORKERS
        elif place.ranks is not None and workers != place.ranks:
            among = f"expected {place.ranks}, among whom --network was measured"
            raise InvalidInputError(name, among)
        target = target_of(options["for"], FOR.name)
        if target is not None and target.sharded:
            raise InvalidInputError(
                FOR.name,
                f"{target.title} shards parameters: expected planner plan --for {target.name}, or "
                "--problem ibatch",
            )
        integer(workers, name, minimum=2, maximum=2**16)
        if servers is not None:
            integer(servers, _SERVERS.name, minimum=1, maximum=workers)
        return {**options, "workers": workers}

    def from_profile(self, profile: Profile, place: Place, options: Mapping[str, Any]) -> Problem:
        return Problem.from_profile(
            profile,
            place.network,
            workers=options["workers"],
            servers=options["servers"],
            seed=options["seed"],
            interference=place.interference,
            target=target_of(options["for"], FOR.name),
        )


CARAMEL = _Caramel()
METHODS = CARAMEL.methods
solve = CARAMEL.solve
