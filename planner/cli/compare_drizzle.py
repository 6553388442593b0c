"""``planner compare`` for group scheduling: only of requests."""

from msgspec import UNSET

from planner import drizzle
from planner.cli.family import Case, Family, percent
from planner.comparison import Comparison
from planner.jsonio import drizzle as drizzle_json
from planner.methods import concrete
from planner.results import Result
from planner.units import counted, format_ns

__all__ = ["FAMILY"]

_COLUMNS = ("method", "group size", "overhead", "iteration", "group", "speed-up", "status")


def _requested(request: drizzle_json.DrizzleRequest) -> Case:
    problem = request.to_problem()
    limit = problem.max_group_ns
    summary = (
        f"request: {counted(problem.tasks or 0, 'task')}, "
        f"{format_ns(problem.compute_ns)} to compute, "
        f"overhead of at most {float(problem.max_overhead):.4g}"
        f"{'' if limit is None else f', a decision every {format_ns(limit)}'}"
    )
    return Case(
        problem,
        lambda result: drizzle_json.answer(problem, result),
        (summary,),
        time_limit=None if request.time_limit_s is UNSET else request.time_limit_s,
    )


def _table(
    comparison: Comparison[drizzle.Plan, drizzle.Evaluation],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    return _COLUMNS, [_cells(row) for row in comparison.rows]


def _cells(result: Result[drizzle.Plan, drizzle.Evaluation]) -> tuple[str, ...]:
    evaluation = result.evaluation
    if result.plan is None or evaluation is None:
        return (result.method, *["–"] * 5, result.status)
    return (
        result.method,
        f"{result.plan.group_size:,}",
        percent(float(evaluation.overhead)),
        format_ns(evaluation.iteration_ns),
        format_ns(evaluation.group_ns),
        f"{float(evaluation.speedup):.4g}",
        result.status,
    )


FAMILY = Family(
    methods=concrete(drizzle.METHODS),
    solve=drizzle.solve,
    table=_table,
    requested=_requested,
)
"""What is compared, and how it is shown."""
