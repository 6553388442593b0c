"""The optimal configuration under the canonical mapping.

Problem: choose servers, replicas, workers, and partitions, copies and threads of every layer, so
that an epoch is shortest (`planner.families.yan.model`) and everything fits in memory.

Method: best-first search over triples (`planner.families.yan.search`), a dynamic program over
layers for each (`planner.families.yan.layerwise`, `planner.families.yan.memory`), rational
arithmetic on ties within rounding (`planner.families.yan.exact_tie_break`). The same search with
each segment on its best worker bounds every mapping.

Guarantee: proven optimal under the canonical mapping; the ranking holds the best configuration of
each triple, in order, ties by more servers first.
Complexity: see these modules. Source: Yan et al., KDD'15; exactness, bounds and ranking are ours.
"""

from collections.abc import Callable
from dataclasses import replace

from planner.families.yan.checker import server_bytes
from planner.families.yan.configuration import Explored, Plan, Ranked
from planner.families.yan.engine import Engine, rank
from planner.families.yan.feasibility import infeasibility
from planner.families.yan.layer_program import Triple
from planner.families.yan.model import estimate
from planner.families.yan.problem import Problem, refuse_different
from planner.families.yan.quick import quick
from planner.families.yan.search import Space
from planner.families.yan.tables import Choice
from planner.model.errors import BrokenConstraintError, InvalidInputError
from planner.model.validation import MAX_VALUE
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import Outcome


def exact(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return the optimal configuration; NotApplicableError if machines differ."""
    refuse_different(problem, "exact")
    return best_of(problem, deadline)


def best_of(
    problem: Problem,
    deadline: Deadline,
    space: Space | None = None,
    allowed: Callable[[Choice], bool] = lambda _: True,
) -> Outcome[Plan]:
    """Return the best configuration in a part of the space; machines must be equal.

    `space` restricts the triples, `allowed` the (partitions, copies) of layers.
    """
    nothing = infeasibility(problem, space, allowed)
    if nothing is not None:
        return Outcome(None, infeasibility=nothing)
    try:
        engine = Engine(problem, space, allowed, deadline=deadline)
        if problem.fixed:
            return _fixed(problem, engine)
        if deadline.heard:
            deadline.offer(quick(problem, space).plan)
        result = engine.search(problem.top, deadline)
    except TimeUpError:
        return quick(problem, space)
    assert result.solutions  # the configuration with least memory is always tried
    ranking = engine.ranked(solution.triple for solution in result.solutions)
    bound = min(engine.exactly(solution.triple).bound for solution in result.solutions)
    if result.timed_out:
        bound = min(bound, engine.below(result.bound))
    plan = Plan(
        ranking[0].configuration,
        tuple(ranking[: problem.top]),
        engine.explored(result),
        any_mapping_bound(problem, deadline, space, allowed),
    )
    return Outcome(plan, bound, result.timed_out)


def any_mapping_bound(
    problem: Problem,
    deadline: Deadline,
    space: Space | None = None,
    allowed: Callable[[Choice], bool] = lambda _: True,
) -> int | None:
    """Return the lower bound (ns) over all configurations and mappings; None if time is up."""
    if deadline.passed:
        return None
    free = replace(problem, memory_bytes=None, fixed=())
    try:
        engine = Engine(free, space, allowed, deadline=deadline, optimistic=True)
        result = engine.search(1, deadline)
    except TimeUpError:
        return None
    if result.timed_out:
        return None
    best = min(solution.epoch for solution in result.solutions)
    return -int(-engine.below(best) // 1)


def _fixed(problem: Problem, engine: Engine) -> Outcome[Plan]:
    ranking, bounds = [], []
    for place, fixed in enumerate(problem.fixed):
        triple = Triple(fixed.workers_per_replica, fixed.replicas, fixed.parameter_servers)
        if fixed.layers is not None:
            configuration = fixed.configuration()
            try:
                epoch = estimate(problem, configuration).epoch
            except BrokenConstraintError as error:
                raise InvalidInputError(f"fixed[{place}]", error.message) from None
            ranking.append(Ranked(configuration, epoch))
            bounds.append(epoch)
        elif server_bytes(problem, triple.servers) > (problem.memory_bytes or MAX_VALUE):
            message = f"its servers need {server_bytes(problem, triple.servers)} bytes each"
            raise InvalidInputError(f"fixed[{place}]", f"{message}, got {problem.memory_bytes}")
        elif engine.solve(triple) is None:
            message = f"no choice of layers fits {problem.memory_bytes} bytes a worker"
            raise InvalidInputError(f"fixed[{place}]", message)
        else:
            ranking += engine.ranked([triple])
            bounds.append(engine.exactly(triple).bound)
    ranking.sort(key=rank)
    count = len(ranking)
    explored = Explored(count, 0, count * len(problem.layers), 0)
    return Outcome(Plan(ranking[0].configuration, tuple(ranking), explored), min(bounds))
