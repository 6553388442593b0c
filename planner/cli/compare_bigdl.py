"""``planner compare`` for synchronisation by slices: only of requests."""

from planner import bigdl
from planner.cli.family import ComparedProblem, Family
from planner.jsonio import bigdl as bigdl_json
from planner.methods import concrete
from planner.results import Result
from planner.units import counted, format_bytes, format_ns

__all__ = ["FAMILY"]


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
    )


def _cells(result: Result[bigdl.Plan, bigdl.Evaluation]) -> tuple[str, ...]:
    evaluation = result.evaluation
    assert evaluation is not None
    return (
        format_ns(evaluation.objective_ns),
        f"{float(evaluation.times_full_transfer):.4g}",
        format_bytes(evaluation.driver_bytes),
    )


FAMILY = Family(
    methods=concrete(bigdl.METHODS),
    solve=bigdl.solve,
    columns=("method", "time", "× T_F", "through the driver"),
    cells=_cells,
    requested=_requested,
    asks="which slice each node sums on Spark; of a request",
    example="planner compare data/bigdl/vgg19-16.json",
    ends=("above bound", "status"),
)
"""What is compared, and how it is shown."""
