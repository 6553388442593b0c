"""``planner compare`` for the configuration of a job: only of requests."""

from planner.cli.family import ComparedProblem, Family
from planner.jsonio import yan as yan_json
from planner.jsonio.yan_answer import YanAnswer, answer, refuse_sensitivity, with_extras
from planner.methods import concrete
from planner.results import Result
from planner.units import counted
from planner.views import epoch_text
from planner.yan.configuration import Plan
from planner.yan.model import Estimate
from planner.yan.solver import METHODS, solve

__all__ = ["FAMILY"]


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
        best=best,
        methods=["auto"] if fixed else None,
    )


def _cells(result: Result[Plan, Estimate]) -> tuple[str, ...]:
    assert result.plan is not None
    assert result.objective_ns is not None
    configuration = result.plan.configuration
    return (
        str(configuration.workers_per_replica),
        str(configuration.replicas),
        str(configuration.parameter_servers),
        str(configuration.machines_used),
        epoch_text(result.objective_ns),
    )


FAMILY = Family(
    methods=concrete(METHODS),
    solve=solve,
    columns=("method", "workers", "replicas", "servers", "machines", "epoch"),
    cells=_cells,
    requested=_requested,
    asks="how many machines, replicas and workers; of a request",
    example="planner compare data/yan/mnist.json",
    bounding="exact",
)
"""What is compared, and how it is shown."""
