"""The methods by name, how their plans are checked, and how a plan of another job is adapted.

`auto` is `exact` where all machines are alike, else `ordered`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeAlias

from planner.families.yan.configuration import Explored, Plan, Ranked
from planner.families.yan.from_profile import ProfiledProblem, profiled, refuse_incomplete
from planner.families.yan.model import Estimate, estimate
from planner.families.yan.problem import COMPUTATION, Problem, scaled
from planner.model.clusters import Cluster, Nic
from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.network import links
from planner.model.profiles import Profile
from planner.model.topologies import Switch
from planner.model.units import counted
from planner.model.validation import total
from planner.solving.compare import IGNORE_MEMORY, MACHINES, Case, Column, Comparison, Option, Place
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, lazy_method
from planner.solving.scenarios import Scenario, refuse_changes

RANKED = 4
"""Configurations of an old plan that are priced again: the first ones of its ranking."""

Method: TypeAlias = AnyMethod[Problem, Plan]

SAMPLES = 10**6
"""Default samples of an epoch; the ranking is the same for any number."""

_MACHINES = replace(MACHINES, least=2)


def _auto(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    method = "exact" if problem.uniform else "ordered"
    return replace(YAN.methods[method](problem, deadline), method=method)


def _checked(problem: Problem, plan: Plan) -> Estimate:
    """Price every configuration of the plan's ranking again, and return the price of the first.

    InvalidPlanError if a price differs or the ranking is not in order.
    """
    priced = cache(partial(estimate, problem))  # a request may ask for one configuration often
    prices = [priced(ranked.configuration).epoch for ranked in plan.ranking]
    if prices != [ranked.epoch for ranked in plan.ranking] or prices != sorted(prices):
        raise InvalidPlanError("ranking", "priced wrongly, or not in order")
    return priced(plan.ranking[0].configuration)


class _Yan(Family[Problem, Plan, Estimate]):
    name, plan_type, baselines = "yan", Plan, ("data_parallel", "model_parallel")
    own_methods = {
        "auto": _auto,
        "exact": lazy_method("planner.families.yan.exact", "exact"),
        "greedy": lazy_method("planner.families.yan.greedy", "greedy"),
        "ordered": lazy_method("planner.families.yan.ordered", "ordered"),
        "data_parallel": lazy_method("planner.families.yan.exact", "data_parallel"),
        "model_parallel": lazy_method("planner.families.yan.exact", "model_parallel"),
    }
    bounding = "exact"
    asks = "how many machines, replicas and workers, and how layers are cut"
    example = "planner compare data/profiles/vgg19.json --problem yan --cluster caramel-16"
    columns = (
        Column("workers", lambda _, plan, __: plan.configuration.workers_per_replica, ","),
        Column("replicas", lambda _, plan, __: plan.configuration.replicas, ","),
        Column("servers", lambda _, plan, __: plan.configuration.parameter_servers, ","),
        Column("machines", lambda _, plan, __: plan.configuration.machines_used, ","),
        Column("epoch", unit="epoch"),
    )
    own_options = (
        _MACHINES,
        Option(
            "--samples N",
            f"samples of an epoch; default: {SAMPLES:,} (any number is ranked alike)",
            SAMPLES,
            least=1,
        ),
        Option(
            "--read-every N",
            "samples between two readings of the weights; default: a batch a machine",
            least=1,
        ),
        Option("--max-copies N", "most copies of a layer in a replica; default: any", least=1),
        IGNORE_MEMORY,
    )

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        _checked(problem, plan)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Estimate:
        return estimate(problem, plan.ranking[0].configuration)

    def priced(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[Estimate, int]:
        evaluation = _checked(problem, plan)  # no configuration is priced twice
        return evaluation, self.objective(problem, evaluation)

    def objective(self, problem: Problem, evaluation: Estimate) -> int:
        return total(-int(-evaluation.epoch // 1), "constants", "the time of an epoch")

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[None, bool]:
        """Return no bound, because every method proves its own unless it had no time for it."""
        return None, False

    def adapt(self, problem: Problem, plan: Plan) -> Plan:
        """Return an old plan with the problem's prices.

        InvalidPlanError if no configuration is valid.
        """
        ranking: list[Ranked] = []
        refused: InvalidInputError | None = None
        ranked = dict.fromkeys(known.configuration for known in plan.ranking[:RANKED])
        for configuration in ranked:
            try:
                epoch = estimate(problem, configuration).epoch
            except InvalidInputError as error:
                refused = error
                continue
            ranking.append(Ranked(configuration, epoch))
        if not ranking:
            raise InvalidPlanError("ranking", f"none can be run: {refused}")
        ranking.sort(key=lambda known: known.epoch)
        explored = Explored(len(ranked), 0)  # the counts of the old search do not apply
        return Plan(ranking[0].configuration, tuple(ranking), explored)

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        """Return the problem with scaled constants; a scenario's computation scales three."""
        reason = "an epoch of yan has no rank that falls behind, and constants have no spreads"
        refuse_changes(scenario, ("late", "spread", "part", "shared"), reason)
        if not scenario.startup:
            raise InvalidInputError("startup", "expected a number > 0: a transfer has a latency")
        for constant in COMPUTATION:
            problem = scaled(problem, constant, scenario.computation)
        problem = scaled(problem, "latency_ns", scenario.startup)
        return scaled(problem, "nic_bits_per_s", scenario.bandwidth)

    def repriced(self, problem: Problem, plan: Plan) -> Plan:
        """Return the plan with its new price; its ranking then holds this configuration only."""
        price = estimate(problem, plan.configuration).epoch
        ranking = (Ranked(plan.configuration, price),)
        return replace(plan, ranking=ranking, any_mapping_bound_ns=None)

    def candidates(
        self, problem: Problem, plans: Sequence[Plan], deadline: Deadline
    ) -> Iterator[Plan]:
        """Yield a plan for each configuration in the ranking of any of the plans."""
        for plan in plans:
            for ranked in plan.ranking:
                yield replace(plan, configuration=ranked.configuration, ranking=(ranked,))

    def about(self, case: Case[Problem]) -> tuple[str, ...]:
        problem, batch, fixed = case.problem, case.made.batch_size, len(case.problem.fixed)
        connections = sum(layer.connections for layer in problem.layers)
        weights = sum(layer.weights for layer in problem.layers)
        space = counted(fixed, "given configuration") if fixed else "all configurations"
        network = (
            f"{case.name}: {counted(len(problem.layers), 'layer')}, "
            f"{counted(connections, 'connection')}, {counted(weights, 'weight')}, "
            f"{counted(problem.samples * batch, 'sample')} an epoch"
        )
        searched = (
            f"{space} on {counted(problem.machines, 'machine')} of "
            f"{counted(problem.cores, 'core')}, up to {counted(problem.threads, 'thread')}, "
            f"weights read every {counted(problem.read_every * batch, 'sample')} "
            f"({problem.read_model})"
        )
        given = ("above bound and status: of the given ones only",) if fixed else ()
        return network, searched, *given

    def compared(self, case: Case[Problem]) -> Sequence[str]:
        return ["auto"] if case.problem.fixed else self.names()

    def notes(self, case: Case[Problem], comparison: Comparison[Plan, Estimate]) -> Sequence[str]:
        return [f"assumed: {text}" for text in case.made.assumptions]

    def resolved_options(self, options: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
        return {**options, "machines": place.machines(options["machines"])}

    def check_profile(self, profile: Profile) -> None:
        refuse_incomplete(profile)

    def from_profile(
        self, profile: Profile, place: Place, options: Mapping[str, Any]
    ) -> ProfiledProblem:
        machines, cluster = options["machines"], place.cluster
        if cluster is None:
            link = links(place.network, 1)
            nic = Nic(link.link_bytes_per_s, link.startup_ns)
            cluster = Cluster("a switch", MACHINES.name, machines, Switch(machines), nic)
        memory: dict[str, Any] = {"memory_bytes": None} if options["ignore_memory"] else {}
        return profiled(
            profile,
            cluster,
            options["samples"],
            read_every=options["read_every"],
            max_copies=options["max_copies"],
            **memory,
        )


YAN = _Yan()
METHODS = YAN.methods
solve = YAN.solve
