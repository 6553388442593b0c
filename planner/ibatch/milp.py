"""Both objectives as a mixed-integer program: an independent witness for the exact methods.

Model: a binary variable x for each possible batch, an arc from layer a to layer b; a path of arcs
from 0 to L. For the makespan, with R_a the computation from layer a on: the batch that covers
layer i arrives after all communication begun up to it, and R_a is still to come,

    M >= E_i,  E_i = E_{i-1} + sum over arcs from i of (c + R_i) x - sum over arcs into i of R_a x,

which needs no big-M. For Eq. 4 the objective is linear in the arcs. Eq. 5 at a boundary says that
an arc into it that computes for t needs an arc out of it that communicates for at least t; written
for every threshold t the relaxation is nearly integral.

Guarantee: optimal up to the solver's tolerance; plans are priced exactly outside. At a time limit,
which counts building and writing the model, the best that CBC had, or a greedy plan.
Complexity: exponential; L²/2 variables and 2L rows, for Eq. 4 up to L²/2 rows; up to
`planner.ibatch.arcs.MAX_LAYERS` layers.
Source: own; PuLP with the CBC it brings.
"""

import time
from typing import Any

# highspy, which PuLP loads where it is installed, and OR-Tools bring two builds of one library
# that cannot both be loaded. PuLP does without it, OR-Tools does not: OR-Tools goes first.
import ortools.sat.python.cp_model  # noqa: F401
import pulp

from planner.deadline import Deadline, TimeUpError
from planner.ibatch.arcs import Arc, all_arcs, path_through, refuse_large
from planner.ibatch.cbc import solve_with_cbc
from planner.ibatch.endings import nothing_covers, out_of_time
from planner.ibatch.problem import Plan, Problem
from planner.solving.methods import Outcome

__all__ = ["solve_milp"]


def solve_milp(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Minimise the objective of `problem` with CBC.

    Raises
    ------
    NotApplicableError
        If there are too many layers (see `planner.ibatch.arcs.MAX_LAYERS`).
    """
    refuse_large(problem, "milp")
    try:
        return _solve(problem, deadline)
    except TimeUpError:
        return out_of_time(problem)


def _solve(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    begin = time.monotonic()
    arcs = all_arcs(problem, deadline)
    # CBC computes in floating point: let the largest time be a million.
    largest = max([arc.communication for arc in arcs] + [problem.compute_prefix[-1], 1])
    scale = largest / 1e6
    model = pulp.LpProblem("ibatch", pulp.LpMinimize)
    chosen = []
    for i in range(len(arcs)):
        deadline.check()
        chosen.append(model.add_variable(f"x{i}", cat=pulp.LpBinary))
    _add_path(model, problem.layers, arcs, chosen, deadline)
    if problem.objective == "makespan":
        _add_makespan(model, problem, arcs, chosen, scale, deadline)
    else:
        _add_paper_model(model, problem, arcs, chosen, scale, deadline)
    solve_with_cbc(model, deadline, time.monotonic() - begin)
    late = deadline.remaining_s == 0
    if late and model.sol_status != pulp.LpSolutionIntegerFeasible:
        return out_of_time(problem)  # "infeasible" then only means that nothing was found in time
    if model.status == pulp.LpStatusInfeasible:
        return Outcome(None, infeasibility=nothing_covers(problem))
    path = [arc for arc, x in zip(arcs, chosen, strict=True) if (x.value() or 0.0) > 0.5]
    return Outcome(
        problem.plan(path_through(path)), timed_out=model.sol_status != pulp.LpSolutionOptimal
    )


def _add_path(
    model: Any, count: int, arcs: list[Arc], chosen: list[Any], deadline: Deadline
) -> None:
    """Choose a path from 0 to `count`."""
    balance: list[list[tuple[Any, int]]] = [[] for _ in range(count + 1)]
    for arc, x in zip(arcs, chosen, strict=True):
        balance[arc.start].append((x, 1))
        balance[arc.stop].append((x, -1))
    for boundary, terms in enumerate(balance[:-1]):
        deadline.check()
        model.addConstraint(pulp.LpAffineExpression(terms) == (1 if boundary == 0 else 0))


def _add_makespan(
    model: Any,
    problem: Problem,
    arcs: list[Arc],
    chosen: list[Any],
    scale: float,
    deadline: Deadline,
) -> None:
    count, computed = problem.layers, problem.compute_prefix
    rest = [(computed[count] - time) / scale for time in computed]
    steps: list[list[tuple[Any, float]]] = [[] for _ in range(count + 1)]
    for arc, x in zip(arcs, chosen, strict=True):
        steps[arc.start].append((x, -(arc.communication / scale + rest[arc.start])))
        steps[arc.stop].append((x, rest[arc.start]))
    makespan = model.add_variable("makespan", lowBound=0)
    model.setObjective(makespan)
    previous = None
    for layer in range(count):
        deadline.check()
        end = model.add_variable(f"e{layer}", lowBound=0)
        terms = [(end, 1.0), *steps[layer]] + ([(previous, -1.0)] if previous is not None else [])
        model.addConstraint(pulp.LpAffineExpression(terms) == 0)
        model.addConstraint(makespan - end >= 0)
        previous = end


def _add_paper_model(
    model: Any,
    problem: Problem,
    arcs: list[Arc],
    chosen: list[Any],
    scale: float,
    deadline: Deadline,
) -> None:
    count = problem.layers
    model.setObjective(
        pulp.LpAffineExpression(
            (x, (arc.communication + (arc.computation if arc.stop == count else 0)) / scale)
            for arc, x in zip(arcs, chosen, strict=True)
        )
    )
    into: list[list[tuple[int, Any]]] = [[] for _ in range(count + 1)]
    out: list[list[tuple[int, Any]]] = [[] for _ in range(count + 1)]
    for arc, x in zip(arcs, chosen, strict=True):
        into[arc.stop].append((arc.computation, x))
        out[arc.start].append((arc.communication, x))
    for boundary in range(1, count):
        for threshold in {computation for computation, _ in into[boundary]}:
            deadline.check()
            needed = [(x, 1) for computation, x in into[boundary] if computation >= threshold]
            covering = [(x, -1) for sending, x in out[boundary] if sending >= threshold]
            model.addConstraint(pulp.LpAffineExpression(needed + covering) <= 0)
