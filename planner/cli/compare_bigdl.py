"""``planner compare`` for synchronisation by slices: only of requests."""

from msgspec import UNSET

from planner import bigdl
from planner.cli.family import ComparedProblem, Family, percent
from planner.comparison import Comparison
from planner.jsonio import bigdl as bigdl_json
from planner.methods import concrete
from planner.results import Result
from planner.units import counted, format_bytes, format_ns

__all__ = ["FAMILY"]

_COLUMNS = ("method", "time", "× T_F", "through the driver", "above bound", "status")


def _requested(request: bigdl_json.BigdlRequest) -> ComparedProblem:
    problem = request.to_problem()
    size = problem.gradient_bytes
    summary = (
        f"request: {counted(problem.nodes, 'node')} with "
        f"{counted(problem.partitions_per_node, 'partition')} each, "
        f"{format_bytes(size)} of gradients, T_F "
        f"{format_ns(problem.network.full_transfer_ns(size))}"
    )
    return ComparedProblem(
        problem,
        lambda result: bigdl_json.answer(problem, result, pull_order=request.pull_order),
        (summary,),
        time_limit=None if request.time_limit_s is UNSET else request.time_limit_s,
    )


def _table(
    comparison: Comparison[bigdl.Plan, bigdl.Evaluation],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    return _COLUMNS, [_cells(row) for row in comparison.rows]


def _cells(result: Result[bigdl.Plan, bigdl.Evaluation]) -> tuple[str, ...]:
    evaluation = result.evaluation
    assert evaluation is not None
    return (
        result.method,
        format_ns(evaluation.objective_ns),
        f"{float(evaluation.times_full_transfer):.4g}",
        format_bytes(evaluation.driver_bytes),
        percent(result.gap),
        result.status,
    )


FAMILY = Family(
    methods=concrete(bigdl.METHODS),
    solve=bigdl.solve,
    table=_table,
    requested=_requested,
)
"""What is compared, and how it is shown."""
