"""``planner compare`` for the configuration of a job: only of requests."""

from msgspec import UNSET

from planner.cli.family import ComparedProblem, Family, percent
from planner.comparison import Comparison
from planner.jsonio import yan as yan_json
from planner.jsonio.yan_answer import YanAnswer, answer, refuse_sensitivity, with_extras
from planner.methods import concrete
from planner.results import Result
from planner.units import counted, format_ns
from planner.views import epoch_text
from planner.yan.configuration import Plan
from planner.yan.model import Estimate
from planner.yan.solver import METHODS, solve

__all__ = ["FAMILY"]

_COLUMNS = (
    "method",
    "workers",
    "replicas",
    "servers",
    "machines",
    "epoch",
    "above bound",
    "status",
    "run time",
)


def _requested(request: yan_json.YanRequest) -> ComparedProblem:
    problem = yan_json.problem_of(request)
    if request.sensitivity:
        refuse_sensitivity(problem, "exact")

    def best(result: Result[Plan, Estimate]) -> YanAnswer:
        return with_extras(
            answer(problem, result),
            problem,
            result,
            pareto=request.pareto,
            landscape=request.landscape,
            sensitivity=request.sensitivity and result.method == "exact",
        )

    connections = sum(layer.connections for layer in problem.layers)
    weights = sum(layer.weights for layer in problem.layers)
    fixed = len(problem.fixed)
    space = counted(fixed, "given configuration") if fixed else "all configurations"
    summary = (
        f"request: {counted(len(problem.layers), 'layer')}, "
        f"{counted(connections, 'connection')}, {counted(weights, 'weight')}, "
        f"{counted(problem.samples, 'sample')} an epoch"
    )
    cluster = (
        f"{space} on {counted(problem.machines, 'machine')} of {counted(problem.cores, 'core')}, "
        f"up to {counted(problem.threads, 'thread')}, weights read every "
        f"{counted(problem.read_every, 'sample')} ({problem.read_model})"
    )
    lines = [summary, cluster]
    if fixed:
        lines.append("above bound and status: of the given ones only")
    return ComparedProblem(
        problem,
        lambda result: answer(problem, result),
        tuple(lines),
        time_limit=None if request.time_limit_s is UNSET else request.time_limit_s,
        best=best,
        methods=["auto"] if fixed else None,
    )


def _table(comparison: Comparison[Plan, Estimate]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    bounds = [row.lower_bound_ns for row in comparison.rows if row.method == "exact"]
    return _COLUMNS, [_cells(row, bounds[0] if bounds else None) for row in comparison.rows]


def _cells(result: Result[Plan, Estimate], bound_ns: int | None) -> tuple[str, ...]:
    runtime = format_ns(round(result.runtime_s * 1e9))
    if result.plan is None or result.objective_ns is None:
        return (result.method, *["–"] * 6, result.status, runtime)
    configuration = result.plan.configuration
    return (
        result.method,
        str(configuration.workers_per_replica),
        str(configuration.replicas),
        str(configuration.parameter_servers),
        str(configuration.machines_used),
        epoch_text(result.objective_ns),
        percent(_above(result, bound_ns)),
        result.status,
        runtime,
    )


def _above(result: Result[Plan, Estimate], bound_ns: int | None) -> float | None:
    """Return the distance to the bound of `exact`, or to the method's own without it.

    The bound of `exact` is one under the canonical mapping; other mappings can be below it.
    """
    if bound_ns and result.objective_ns is not None and result.objective_ns >= bound_ns:
        return result.objective_ns / bound_ns - 1
    return result.gap


FAMILY = Family(
    methods=concrete(METHODS),
    solve=solve,
    table=_table,
    requested=_requested,
)
"""What is compared, and how it is shown."""
