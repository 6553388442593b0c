"""``planner compare`` for whole iterations: of requests, and with ``--peers`` of many profiles."""

from typing import TypeAlias

from msgspec import UNSET

from planner import iteration
from planner.cli.family import ComparedProblem, Family
from planner.iteration.peers import JOINT
from planner.jsonio import iteration as iteration_json
from planner.jsonio.iteration_making import answer
from planner.methods import concrete
from planner.results import Result
from planner.units import counted, format_bytes, format_ns

__all__ = ["FAMILY"]

_Result: TypeAlias = Result[iteration.Plan, iteration.Evaluation]


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
        warnings=request.profile.provenance.warnings,
    )


def _cells(result: _Result) -> tuple[str, ...]:
    evaluation = result.evaluation
    assert result.plan is not None
    assert evaluation is not None
    return (
        " + ".join(result.plan.algorithms),
        result.plan.mode,
        str(len(result.plan.transfers)),
        format_ns(evaluation.iteration_ns),
        format_ns(evaluation.stall_ns),
    )


FAMILY = Family(
    methods=concrete(iteration.METHODS),
    solve=iteration.solve,
    columns=("method", "algorithm", "mode", "transfers", "iteration", "stalls"),
    cells=_cells,
    requested=_requested,
    asks="a whole iteration on a cluster; of a request, else planner plan",
    example="planner compare request.json",
    bounding=JOINT,
)
"""What is compared, and how it is shown."""
