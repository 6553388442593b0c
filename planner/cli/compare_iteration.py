"""``planner compare`` for whole iterations: of requests, and with ``--peers`` of many profiles."""

from typing import TypeAlias

from msgspec import UNSET

from planner import iteration
from planner.cli.family import ComparedProblem, Family, percent
from planner.comparison import Comparison
from planner.iteration.peers import JOINT
from planner.jsonio import iteration as iteration_json
from planner.jsonio.iteration_making import answer
from planner.methods import concrete
from planner.results import Result
from planner.units import counted, format_bytes, format_ns

__all__ = ["FAMILY"]

_Result: TypeAlias = Result[iteration.Plan, iteration.Evaluation]

_COLUMNS = (
    "method",
    "algorithm",
    "mode",
    "transfers",
    "iteration",
    "stalls",
    "above bound",
    "status",
    "run time",
)


def _requested(request: iteration_json.IterationRequest) -> ComparedProblem:
    problem, name = request.to_problem(), request.profile.name
    scale = 1 if request.computation_scale is UNSET else request.computation_scale
    cluster, size = problem.cluster, sum(problem.pushed)
    summary = (
        f"request: {name} on {cluster.name}: {counted(cluster.workers, 'worker')}, "
        f"{format_bytes(size)} of gradients in {counted(len(problem.pushed), 'parameter')}, "
        f"computation × {float(scale):g}"
    )
    return ComparedProblem(
        problem,
        lambda result: answer(problem, result, model=name),
        (summary,),
        name,
        time_limit=None if request.time_limit_s is UNSET else request.time_limit_s,
    )


def _table(
    comparison: Comparison[iteration.Plan, iteration.Evaluation],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    bounds = {row.method: row.lower_bound_ns for row in comparison.rows}
    return _COLUMNS, [_cells(row, bounds.get(JOINT)) for row in comparison.rows]


def _cells(result: _Result, bound_ns: int | None) -> tuple[str, ...]:
    evaluation = result.evaluation
    took = format_ns(round(result.runtime_s * 1e9))
    if result.plan is None or evaluation is None:
        return (result.method, *["–"] * 6, result.status, took)
    return (
        result.method,
        " + ".join(result.plan.algorithms),
        result.plan.mode,
        str(len(result.plan.transfers)),
        format_ns(evaluation.iteration_ns),
        format_ns(evaluation.stall_ns),
        percent(_above(result, bound_ns)),
        result.status,
        took,
    )


def _above(result: _Result, bound_ns: int | None) -> float | None:
    """Return the distance to the bound of the joint plan, or to the method's own without it.

    A plan below that bound belongs to another op order.
    """
    if bound_ns and result.objective_ns is not None and result.objective_ns >= bound_ns:
        return result.objective_ns / bound_ns - 1
    return result.gap


FAMILY = Family(
    methods=concrete(iteration.METHODS),
    solve=iteration.solve,
    table=_table,
    requested=_requested,
)
"""What is compared, and how it is shown."""
