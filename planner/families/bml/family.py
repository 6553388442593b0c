"""BML's family: how plans are checked, priced, bounded, perturbed and compared."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from planner.families.bml.checker import CheckerContext, check
from planner.families.bml.evaluation import Evaluation, evaluate, is_intact
from planner.families.bml.methods import OWN_METHODS, lower_bound_ns
from planner.families.bml.problem import Problem
from planner.families.bml.reroute import damage_of
from planner.families.bml.trees import Plan, TreePlan
from planner.families.collectives import COLLECTIVES, Collective, collective, lower_bound
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.network import scaled_network
from planner.model.profiles import Profile
from planner.model.topologies import BCube, Failures
from planner.model.units import format_bytes, format_ns
from planner.model.validation import one_of, total
from planner.solving.compare import Case, Column, Option, Place
from planner.solving.deadline import NEVER, Cancel, Deadline
from planner.solving.family import Family
from planner.solving.result import Result
from planner.solving.scenarios import Scenario, refuse_changes


def _largest_term(problem: Problem) -> str:
    """Return the field to blame if a time exceeds 63 bits; T_F alone never does (`Problem`)."""
    network = problem.network
    terms: dict[str, Fraction] = {
        "latency_ns": Fraction(network.startup_ns * len(problem.chunks) * problem.bcube.k),
        "reduce_ns_per_byte": network.reduce_ns_per_byte * problem.size_bytes,
        "link_bytes_per_s": network.time(problem.size_bytes),
    }
    return max(terms, key=terms.__getitem__)


REPLANS = ("detour", "trees")
"""The methods for networks where something has failed."""

_BCUBE = Option(
    "--bcube N,K",
    "as many servers and switches as BCube(n, k): 3,2 (needed); other topologies connect as many "
    "servers by switches with as many ports. What is drawn and written is BML's plan",
)


def _figures(plan: Plan | Collective, cost: Evaluation | None) -> tuple[int, int, int, Fraction]:
    """Return the NICs, switches and steps, and the load of the busiest NIC in gradients."""
    if isinstance(plan, Collective):
        return plan.nics, plan.switches, plan.steps, plan.volume
    assert cost is not None
    return plan.bcube.k, plan.bcube.switches, 2 * plan.steps + plan.rounds - 1, cost.load


class _Bml(Family[Problem, Plan, Evaluation]):
    name, plan_type, baselines = "bml", Plan, ("bml",)
    own_methods = OWN_METHODS
    heading, ends = "algorithm", ("above bound", "status")
    asks = "who sums up which piece of the gradient over which link; of a profile"
    example = (
        "planner compare data/profiles/vgg19.json --problem bml --bcube 3,2 --startup 5us "
        "--bandwidth 40Gb/s"
    )
    columns = (
        Column("NICs", lambda _, plan, cost: _figures(plan, cost)[0], ","),
        Column("switches", lambda _, plan, cost: _figures(plan, cost)[1], ","),
        Column("steps", lambda _, plan, cost: _figures(plan, cost)[2], ","),
        Column("× T_F", lambda _, plan, cost: float(_figures(plan, cost)[3]), ".4f"),
        Column("time"),
    )
    own_options = (_BCUBE,)

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        damage = damage_of(problem, deadline)
        exclusive = not problem.failed and not isinstance(plan, TreePlan)
        context = CheckerContext(damage.bcube, damage.dead, damage.down, exclusive=exclusive)
        # Algorithm 1 is made at once, its price is a formula, and its check is short.
        check(context, plan, NEVER if is_intact(plan) else damage.deadline)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        last = NEVER if is_intact(plan) else damage_of(problem, deadline).deadline
        return evaluate(problem, plan, last)

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return total(evaluation.time_ns, _largest_term(problem), "the time")

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[int, bool]:
        return lower_bound_ns(problem, damage_of(problem, deadline)), False

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        reason = "the synchronisation of bml has no passes and no spreads"
        refuse_changes(scenario, ("late", "spread", "part", "shared"), reason)
        return replace(problem, network=scaled_network(problem.network, **scenario.links))

    def summary(self, problem: Problem) -> str:
        bcube, failed = problem.bcube, problem.failed
        without = f", without {failed.in_words()}" if failed else ""
        return (
            f"{bcube.servers:,} servers of BCube({bcube.n}, {bcube.k}){without}: "
            f"{format_bytes(problem.size_bytes)} of gradients, T_F "
            f"{format_ns(problem.network.full_transfer_ns(problem.size_bytes))}"
        )

    def names(self) -> Sequence[str]:
        return [*COLLECTIVES, *REPLANS]

    def compared(self, case: Case[Problem]) -> Sequence[str]:
        """Return all algorithms; for a damaged BCube, the methods that plan around failures."""
        return REPLANS if case.problem.failed else list(COLLECTIVES)

    def solve_case(
        self, case: Case[Problem], *, method: str, time_limit: float | None, cancel: Cancel | None
    ) -> Result[Any, Any]:
        """Return an algorithm's price without failures, and the bound for as many NICs."""
        problem = case.problem
        if problem.failed:
            return super().solve_case(case, method=method, time_limit=time_limit, cancel=cancel)
        name = one_of(method, COLLECTIVES, "method")
        tensors: Sequence[int] = problem.layer_bytes
        if case.profile is not None:
            tensors = [layer.pushed_bytes for layer in case.profile.layers]
        known = tensors if problem.size_bytes else ()
        plan = collective(name, problem.bcube, tensors=known or None)
        diameter = problem.bcube.k if plan.topology == "bcube" else 1
        least = lower_bound(plan.servers, plan.nics, diameter)
        size, network = problem.size_bytes, problem.network
        try:
            time = plan.time_ns(network, size)
        except InvalidInputError as error:
            raise NotApplicableError(error.path, error.message) from None
        return Result(name, plan, time, least.time_ns(network, size), 0.0)

    def chosen(self, case: Case[Problem], result: Result[Any, Any]) -> Result[Plan, Evaluation]:
        """Return BML's plan, whichever algorithm is best."""
        if not isinstance(result.plan, Collective):
            return result
        method, limit = case.options.get("method", "auto"), case.options.get("time_limit")
        return self.solve(case.problem, method=method, time_limit=limit)

    def resolved_options(self, options: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
        bcube, cluster = options["bcube"], place.cluster
        if cluster is not None:
            if bcube is not None:
                raise InvalidInputError(_BCUBE.name, "not together with --cluster")
            bcube = cluster.topology
            if not isinstance(bcube, BCube):
                raise InvalidInputError(
                    "--cluster", f"expected a bcube such as bml-bcube, and {cluster.name} is none"
                )
        if bcube is None:
            raise InvalidInputError(_BCUBE.name, "missing: it says how many servers there are: 3,2")
        return {**options, "bcube": bcube}

    def check_profile(self, profile: Profile) -> None:
        """Accept every profile: BML needs only the sizes of layers."""

    def from_profile(self, profile: Profile, place: Place, options: Mapping[str, Any]) -> Problem:
        failed = Failures() if place.cluster is None else place.cluster.failed
        return Problem.from_profile(profile, place.network, options["bcube"], failed=failed)


BML = _Bml()
METHODS = BML.methods
solve = BML.solve
