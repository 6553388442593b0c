"""Constraint program over all batches, an independent cross-check of the exact methods.

Model: a Boolean per feasible batch; each layer lies in exactly one chosen batch. The objectives are
in docs/ibatch.md ("Why two solvers cross-check").
Guarantee: optimal for times whose sum, over their greatest common divisor, is below 2^45. Larger
times are rounded in the model; plans are priced exactly afterwards. At a time limit, which includes
building the model, returns CP-SAT's incumbent or a greedy plan.
Complexity: exponential; L²/2 Booleans; up to `planner.families.ibatch.methods.MAX_LAYERS` layers.
Source: own; OR-Tools CP-SAT with one worker and a fixed seed.
"""

from math import gcd
from typing import Any

from ortools.sat.python import cp_model

from planner.families.ibatch.bounds import nothing_covers, out_of_time
from planner.families.ibatch.problem import Arc, Plan, Problem
from planner.solving.cpsat import solved
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome

_MAX_BITS = 45
"""CP-SAT adds up to L² numbers of this size in 63 bits."""


def solve_cpsat(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Minimise the objective with CP-SAT; raise `TimeUpError` if building the model is late."""
    arcs = problem.arcs(deadline)
    model = cp_model.CpModel()
    chosen = [(arc, model.new_bool_var("")) for arc in arcs]
    covering: list[list[Any]] = [[] for _ in range(problem.layers)]
    for arc, x in chosen:
        deadline.check()
        for layer in range(arc.start, arc.stop):
            covering[layer].append(x)
    for options in covering:
        deadline.check()
        model.add_exactly_one(options)
    add = _add_makespan if problem.objective == "makespan" else _add_paper_model
    add(model, problem, chosen, deadline)
    deadline.check()
    solver, found, proven = solved(model, deadline)
    if not found:
        if proven:
            return Outcome(None, infeasibility=nothing_covers(problem))
        return out_of_time(problem)
    stops = [arc.stop for arc, x in chosen if solver.boolean_value(x)]
    return Outcome(problem.plan([0, *sorted(stops)]), timed_out=not proven)


Chosen = list[tuple[Arc, Any]]
"""Every batch, with the Boolean that says whether it is chosen."""


def _scaled(problem: Problem, chosen: Chosen) -> tuple[list[int], list[int]]:
    """Return communication times of arcs and prefix sums of computation, scaled to fit CP-SAT."""
    times = [arc.communication for arc, _ in chosen]
    divisor = gcd(*times, *problem.compute_ns) or 1
    total = problem.layers * max(times) + problem.compute_prefix[-1]
    divisor <<= max(0, (total // divisor).bit_length() - _MAX_BITS)
    return (
        [-(-time // divisor) for time in times],
        [time // divisor for time in problem.compute_prefix],
    )


def _add_makespan(model: Any, problem: Problem, chosen: Chosen, deadline: Deadline) -> None:
    times, computed = _scaled(problem, chosen)
    count = problem.layers
    latest = count * max(times) + computed[count]
    makespan = model.new_int_var(0, latest, "")
    # sent[b]: communication time of all batches that end at boundary b or before.
    sent: list[Any] = [0]
    ending: list[list[tuple[int, Any]]] = [[] for _ in range(count + 1)]
    for (arc, x), time in zip(chosen, times, strict=True):
        ending[arc.stop].append((time, x))
    for stop in range(1, count + 1):
        deadline.check()
        total = model.new_int_var(0, latest, "")
        model.add(total == sent[-1] + sum(time * x for time, x in ending[stop]))
        sent.append(total)
    for arc, x in chosen:
        deadline.check()
        rest = computed[count] - computed[arc.start]
        model.add(makespan >= sent[arc.stop] + rest).only_enforce_if(x)
    model.minimize(makespan)


def _add_paper_model(model: Any, problem: Problem, chosen: Chosen, deadline: Deadline) -> None:
    times, computed = _scaled(problem, chosen)
    count = problem.layers
    leaving: list[Chosen] = [[] for _ in range(count + 1)]
    for arc, x in chosen:
        leaving[arc.start].append((arc, x))
    for arc, x in chosen:
        deadline.check()
        if arc.stop < count:
            covering = [
                y for follower, y in leaving[arc.stop] if follower.communication >= arc.computation
            ]
            model.add_bool_or(covering).only_enforce_if(x)
    model.minimize(
        sum(
            (time + (computed[count] - computed[arc.start] if arc.stop == count else 0)) * x
            for (arc, x), time in zip(chosen, times, strict=True)
        )
    )
