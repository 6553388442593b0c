"""The methods by name, how plans are checked, priced, bounded, and adapted to another job.

`auto` is `exact` for chains of up to `SMALL` layers, where that takes seconds at most, and `search`
for all others.

In a scenario the times of both passes are scaled, and the costs of all collectives. The rank that
falls behind (`late`) is priced: its backward computation is longer, its recomputation is not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TypeAlias

from planner.families.fsdp.baselines import BASELINES, Rule, fitted
from planner.families.fsdp.bounds import lower_bound
from planner.families.fsdp.checker import check, peak_memory
from planner.families.fsdp.evaluation import Evaluation, evaluate, iteration_ns
from planner.families.fsdp.exact import exact
from planner.families.fsdp.min_memory import finest_units, memory_infeasibility
from planner.families.fsdp.prefetch import FARTHEST, changes, prefetched
from planner.families.fsdp.problem import CHANNELS, Mesh, Plan, Problem, at_use
from planner.families.fsdp.search import improved_start, search
from planner.model.costs import scaled_cost
from planner.model.profiles import Profile
from planner.model.units import counted, format_bytes, format_ns
from planner.solving.compare import IGNORE_MEMORY, OPTIMISER, Case, Column, Option
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.family import Family
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, named
from planner.solving.result import Infeasibility
from planner.solving.scenarios import Scenario, refuse_changes, scaled_times

Method: TypeAlias = AnyMethod[Problem, Plan]

SMALL = 5
"""Longest chain that `auto` solves exactly."""


PRICED = 5000
"""Plans that a search over one scenario prices."""


def _rule(name: str, run: Rule) -> Method:
    """Return a baseline method; its plan may not fit into memory."""

    def method(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        found = fitted(problem, run, deadline)
        if found.plan is not None:
            return found
        if found.timed_out:
            raise TimeUpError
        needed = min(
            peak_memory(problem, run(problem, mesh)) for mesh in range(len(problem.meshes))
        )
        reason = (
            f"the plan of {name} needs at least {format_bytes(needed)}, more than memory_bytes; "
            "method auto finds one that fits"
        )
        nothing = memory_infeasibility(problem) or Infeasibility(reason, ("memory_bytes",))
        return Outcome(None, infeasibility=nothing)

    return method


def _auto(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    if len(finest_units(problem)) <= SMALL:
        return named("exact", exact)(problem, deadline)
    return named("search", search)(problem, deadline)


class _Fsdp(Family[Problem, Plan, Evaluation]):
    name, plan_type, baselines = "fsdp", Plan, tuple(BASELINES)
    own_methods = {
        "auto": _auto,
        "exact": exact,
        "search": search,
        **{name: _rule(name, run) for name, run in BASELINES.items()},
    }

    asks = "what FSDP should wrap, prefetch and keep"
    example = "planner compare data/profiles/gpt2_small.json --problem fsdp --cluster h100-8"
    columns = (
        Column("units", lambda _, plan, __: len(plan.units), ","),
        Column("kept", lambda _, plan, __: sum(unit.keep for unit in plan.units), ","),
        Column.of("iteration", "iteration_ns"),
        Column.of("exposed comm.", "exposed_ns"),
        Column.of("peak memory", "peak_bytes", "bytes"),
    )
    on_cluster = True
    own_options = (
        Option(
            f"--channels {'|'.join(CHANNELS)}",
            "one communicator for all-gathers and reduce-scatters (default), two that do not "
            "disturb each other, or two that share the links",
            "one",
        ),
        Option("--memory SIZE", "memory of a rank, such as 80GiB; default: the cluster's"),
        Option("--recompute", "layers may be recomputed (activation checkpointing)"),
        Option(
            "--shards N,M,…",
            "over how many ranks parameters may be sharded, with copies on the others; default: "
            "all, and on hosts with several accelerators those of one host, of two, of four …",
        ),
        *(OPTIMISER, IGNORE_MEMORY),
    )

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        check(problem, plan)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        return evaluate(problem, plan)

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return evaluation.iteration_ns

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[Fraction, bool]:
        return lower_bound(problem, deadline, enough_ns=iteration_ns(problem, plan))

    def adapt(self, problem: Problem, plan: Plan) -> Plan:
        """Return a start plan with no more inputs held than there are units."""
        return replace(plan, buffers=min(plan.buffers, max(len(plan.units), 1)))

    def improve(self, problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
        return improved_start(problem, plan, deadline)

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        refuse_changes(scenario, ("spread", "part"), "fsdp knows no spreads of layers")
        refuse_changes(scenario, ("shared",), "fsdp has no groups whose channels could be shared")
        nothing = (0,) * problem.layers
        backward = scaled_times(problem.backward_ns[::-1], nothing, "backward", scenario)[::-1]
        return replace(
            problem,
            forward_ns=scaled_times(problem.forward_ns, nothing, "forward", scenario),
            backward_ns=backward,
            meshes=tuple(_scaled(mesh, scenario) for mesh in problem.meshes),
        )

    def budget(self, problem: Problem, plan: Plan) -> int:
        return PRICED

    def neighbours(
        self, problem: Problem, variants: Sequence[Problem], plan: Plan
    ) -> Iterator[Plan]:
        """Yield plans with one change of units, of what they keep, or of how early they gather."""
        shape = at_use(plan.mesh, plan.units, plan.buffers)
        for other, ahead in changes(problem, shape, FARTHEST):
            changed = prefetched(problem, other, ahead)
            if changed is not None:
                yield changed

    def summary(self, problem: Problem) -> str:
        memory = "memory does not bind"
        if problem.memory_bytes is not None:
            memory = f"{format_bytes(problem.memory_bytes)} each"
        return (
            f"{counted(problem.layers, 'layer')} with "
            f"{format_bytes(sum(problem.parameter_bytes))} of parameters, "
            f"{format_ns(problem.compute_ns)} to compute, on "
            f"{counted(problem.meshes[0].ranks, 'rank')}, {memory}"
        )

    def compared(self, case: Case[Problem]) -> Sequence[str]:
        """Return `auto`, which is exact where that takes seconds at most, and all others."""
        return ["auto", *(name for name in self.names() if name != "exact")]

    def check_profile(self, profile: Profile) -> None:
        """Accept every profile: the problem needs only layers."""


def _scaled(mesh: Mesh, scenario: Scenario) -> Mesh:
    """Return a mesh with the costs of a scenario."""
    scaled = partial(scaled_cost, startup=scenario.startup, rate=1 / scenario.bandwidth)
    return replace(
        mesh,
        all_gather=scaled(mesh.all_gather),
        reduce_scatter=scaled(mesh.reduce_scatter),
        all_reduce=None if mesh.all_reduce is None else scaled(mesh.all_reduce),
    )


FSDP = _Fsdp()
METHODS = FSDP.methods
solve = FSDP.solve
