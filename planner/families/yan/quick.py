"""Fallback: a configuration at once, if the time is up before a search has found one.

Method: data parallelism with the best of the numbers of replicas that are powers of two (or the
most possible); where memory is too short for that, the configuration with least memory.

Guarantee: a configuration whenever one exists; the only bound is 0.
Complexity: O(L·K·log N); with memory that of `planner.families.yan.feasibility`. Source: own.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from planner.families.yan.configuration import Explored, Plan, Ranked
from planner.families.yan.engine import configuration_of, normal
from planner.families.yan.feasibility import infeasibility, least_triple, space_of
from planner.families.yan.layer_program import LayerState, Triple, state_at
from planner.families.yan.layerwise import Layerwise
from planner.families.yan.model import estimate
from planner.families.yan.problem import Problem
from planner.families.yan.search import Space
from planner.families.yan.tables import Tables
from planner.model.errors import BrokenConstraintError
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility


def quick(problem: Problem, space: Space | None = None) -> Outcome[Plan]:
    """Return a configuration whose triple is in `space`, all by default."""
    if problem.fixed:
        reason = "the time limit passed before the configurations in fixed were priced"
        return Outcome(None, infeasibility=Infeasibility(reason, ("time_limit_s",)), timed_out=True)
    nothing = infeasibility(problem, space)
    if nothing is not None:
        return Outcome(None, infeasibility=nothing)
    space = space or space_of(problem)
    try:
        ranked = _priced(problem, *_data_parallel(problem, space))
    except BrokenConstraintError:
        triple, partitions = least_triple(problem, space)
        ranked = _priced(problem, triple, [LayerState(p, 1, 1) for p in partitions])
    explored = Explored(space.count, 0, len(problem.layers), 0)
    plan = Plan(ranked.configuration, (ranked,), explored)
    return Outcome(plan, Fraction(0), timed_out=True)


def _priced(problem: Problem, triple: Triple, states: Sequence[LayerState]) -> Ranked:
    configuration = configuration_of(triple, states)
    if not problem.uniform:
        from planner.families.yan.ordered import OrderedMachines

        cluster = OrderedMachines(problem)
        configuration = cluster.dealt(configuration, *cluster.used(cluster.orders[0], triple))
    return Ranked(configuration, estimate(problem, configuration).epoch)


def _data_parallel(problem: Problem, space: Space) -> tuple[Triple, list[LayerState]]:
    """Return the best of some numbers of replicas, as if all machines were equal."""
    alike = replace(problem, machine_speeds=None, nic_speeds=None)
    layerwise = Layerwise(Tables(normal(problem if problem.uniform else alike)), 1)
    most = min(space.most_replicas, problem.machines - space.fewest_servers)
    counts = {1 << power for power in range(most.bit_length())} | {most}
    triples = [Triple(1, replicas, problem.machines - replicas) for replicas in sorted(counts)]
    best = min(triples, key=layerwise.bound)  # with one segment a layer the bound is exact
    own = layerwise.lowest(best)
    return best, [
        state_at(options.choices, 0, int(cost[0].argmin()))
        for options, cost in zip(layerwise.options, own, strict=True)
    ]
