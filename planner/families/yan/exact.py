"""The optimal configuration under the canonical mapping, of all kinds or of one; a fallback.

Problem: choose servers, replicas, workers, and partitions, copies and threads of every layer, so
that an epoch is shortest (`planner.families.yan.model`) and everything fits in memory. The two ends
of the design space are baselines: data parallelism (one worker a replica) and model parallelism
(one replica, one copy of every layer).

Method: best-first search over triples (`planner.families.yan.search`). The same search with each
segment on its best worker bounds every mapping.

Guarantee: proven optimal under the canonical mapping; the ranking holds the best configuration of
each triple, in order, ties by more servers first. Complexity: see `planner.families.yan.search`.
Source: Yan et al., KDD'15; exactness, bounds and ranking are ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from planner.families.yan.configuration import (
    Configuration,
    Explored,
    Fixed,
    Plan,
    Ranked,
    Space,
    Triple,
)
from planner.families.yan.layer_program import LayerState, state_at
from planner.families.yan.layerwise import Layerwise
from planner.families.yan.memory import infeasibility, least_split, space_of
from planner.families.yan.model import estimate
from planner.families.yan.problem import Choice, Problem, refuse_different, refuse_fixed
from planner.families.yan.search import Engine, configuration_of, normal, rank
from planner.families.yan.segments import server_bytes
from planner.families.yan.tables import Tables
from planner.model.errors import BrokenConstraintError, InvalidInputError
from planner.model.validation import MAX_VALUE
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility


def exact(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return the optimal configuration; NotApplicableError if machines differ."""
    refuse_different(problem, "exact")
    return _best(problem, deadline)


def data_parallel(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return the best configuration with one worker per replica.

    NotApplicableError if machines differ or configurations are fixed.
    """
    refuse_different(problem, "data_parallel")
    refuse_fixed(problem, "data_parallel")
    return _best(problem, deadline, replace(space_of(problem), most_workers=1))


def model_parallel(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return the best configuration with one replica and one copy of every layer.

    NotApplicableError if machines differ or configurations are fixed.
    """
    refuse_different(problem, "model_parallel")
    refuse_fixed(problem, "model_parallel")
    space = replace(space_of(problem), most_replicas=1)
    return _best(problem, deadline, space, lambda choice: choice[1] == 1)


def _best(
    problem: Problem,
    deadline: Deadline,
    space: Space | None = None,
    allowed: Callable[[Choice], bool] = lambda _: True,
) -> Outcome[Plan]:
    """Return the best configuration in a part of the space; machines must be equal.

    `space` restricts the triples, `allowed` the (partitions, copies) of layers; the bound then
    holds for every configuration.
    """
    nothing = infeasibility(problem, space, allowed)
    if nothing is not None:
        return Outcome(None, infeasibility=nothing)
    whole = space is None
    try:
        engine = Engine(problem, space, allowed, deadline=deadline)
        if problem.fixed:
            return _fixed(problem, engine)
        if deadline.has_listener:
            deadline.report_incumbent(quick(problem, space).plan)
        return searched(engine, proven=whole)
    except TimeUpError:
        outcome = quick(problem, space)
        return outcome if whole else replace(outcome, lower_bound=None)


def searched(engine: Engine, *, proven: bool) -> Outcome[Plan]:
    """Return the best triples; TimeUpError if there was no time for any.

    If `proven`, the bound holds for the engine's mapping and whole space, else for every mapping.
    """
    problem, deadline = engine.problem, engine.deadline
    result = engine.search(problem.top, deadline)
    assert result.solutions  # the configuration with least memory is always tried
    ranking = engine.ranked(solution.triple for solution in result.solutions)
    anywhere = any_mapping_bound(problem, deadline)
    bound = None if anywhere is None else Fraction(anywhere)
    if proven:
        bound = min(engine.exactly(solution.triple).bound for solution in result.solutions)
        if result.timed_out:
            bound = min(bound, engine.below(result.bound))
    explored = Explored(result.triples, result.cut)
    plan = Plan(ranking[0].configuration, tuple(ranking[: problem.top]), explored, anywhere)
    return Outcome(plan, bound, result.timed_out or engine.stopped)


def any_mapping_bound(problem: Problem, deadline: Deadline) -> int | None:
    """Return the lower bound (ns) over all configurations and mappings; None if time is up."""
    if deadline.passed:
        return None
    free = replace(problem, memory_bytes=None, fixed=())
    try:
        engine = Engine(free, deadline=deadline, optimistic=True)
        result = engine.search(1, deadline)
    except TimeUpError:
        return None
    if result.timed_out:
        return None
    best = min(solution.epoch for solution in result.solutions)
    return -int(-engine.below(best) // 1)


def _fixed(problem: Problem, engine: Engine) -> Outcome[Plan]:
    def made(triple: Triple, fixed: Fixed) -> tuple[list[Configuration], Fraction | None]:
        if fixed.layers is not None:
            return [fixed.configuration()], None
        needed, room = server_bytes(problem, triple.servers), problem.memory_bytes
        if needed > (room or MAX_VALUE):
            message = f"its servers need {needed} bytes each, got {room}"
            raise BrokenConstraintError("", message, "memory_bytes")
        if engine.solve(triple) is None:
            return [], None
        solved = engine.exactly(triple)
        return [configuration_of(triple, solved.states)], solved.bound

    return price_fixed(problem, made, "worker")


def price_fixed(
    problem: Problem,
    made: Callable[[Triple, Fixed], tuple[list[Configuration], Fraction | None]],
    holder: str,
) -> Outcome[Plan]:
    """Return the ranking of the configurations in `fixed`.

    `made` returns configurations for one entry of `fixed`, and a bound; None stands for the best
    price. `holder` names the kind of machine in the error if no configuration fits.
    """
    ranking, bounds = [], []
    for place, fixed in enumerate(problem.fixed):
        triple = Triple(fixed.workers_per_replica, fixed.replicas, fixed.parameter_servers)
        try:
            configurations, bound = made(triple, fixed)
            prices = [Ranked(plan, estimate(problem, plan).epoch) for plan in configurations]
        except BrokenConstraintError as error:
            raise InvalidInputError(f"fixed[{place}]", error.message) from None
        if not prices:
            message = f"no choice of layers fits {problem.memory_bytes} bytes a {holder}"
            raise InvalidInputError(f"fixed[{place}]", message)
        ranking.append(min(prices, key=lambda ranked: ranked.epoch))
        bounds.append(ranking[-1].epoch if bound is None else bound)
    ranking.sort(key=rank)
    plan = Plan(ranking[0].configuration, tuple(ranking), Explored(len(ranking), 0))
    return Outcome(plan, min(*bounds, ranking[0].epoch))


# ---
# Fallback: a configuration at once, if the time is up before a search has found one.
#
# Method: data parallelism with the best of the numbers of replicas that are powers of two (or the
# most possible); where memory is too short for that, the configuration with least memory.
#
# Guarantee: a configuration whenever one exists; the only bound is 0. Complexity: O(L·K·log N).


def quick(
    problem: Problem,
    space: Space | None = None,
    dealt: Callable[[Configuration], Configuration] | None = None,
) -> Outcome[Plan]:
    """Return a configuration whose triple is in `space` (default: all triples).

    If machines differ, `dealt` assigns them to a configuration.
    """
    if problem.fixed:
        reason = "the time limit passed before the configurations in fixed were priced"
        return Outcome(None, infeasibility=Infeasibility(reason, ("time_limit_s",)), timed_out=True)
    nothing = infeasibility(problem, space)
    if nothing is not None:
        return Outcome(None, infeasibility=nothing)
    space = space or space_of(problem)

    def priced(triple: Triple, states: Sequence[LayerState]) -> Ranked:
        configuration = configuration_of(triple, states)
        if dealt is not None:
            configuration = dealt(configuration)
        return Ranked(configuration, estimate(problem, configuration).epoch)

    try:
        ranked = priced(*_data_parallel(problem, space))
    except BrokenConstraintError:
        least = least_split(problem, space)
        workers = min(space.machines - least.servers, space.most_workers)
        states = [LayerState(partitions, 1, 1) for _, partitions in least.layers]
        ranked = priced(Triple(workers, 1, least.servers), states)
    plan = Plan(ranked.configuration, (ranked,), Explored(space.count, 0))
    return Outcome(plan, Fraction(0), timed_out=True)


def _data_parallel(problem: Problem, space: Space) -> tuple[Triple, list[LayerState]]:
    """Return the best of some purely data-parallel triples, as if all machines were equal."""
    alike = replace(problem, machine_speeds=None)
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
