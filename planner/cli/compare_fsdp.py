"""``planner compare`` for fully sharded training."""

from planner import fsdp
from planner.cli.family import ComparedProblem, Family
from planner.jsonio import fsdp as fsdp_json
from planner.methods import concrete
from planner.results import Result
from planner.units import counted, format_bytes, format_ns

__all__ = ["FAMILY", "summary"]

_METHODS = [name for name in concrete(fsdp.METHODS) if name != "exact"]


def _requested(request: fsdp_json.FsdpRequest) -> ComparedProblem:
    problem = request.to_problem()
    return ComparedProblem(
        problem,
        lambda result: fsdp_json.answer(problem, result),
        (f"request: {summary(problem)}",),
        methods=["auto", *_METHODS],
    )


def summary(problem: fsdp.Problem) -> str:
    """Return one line about a problem."""
    ranks = problem.meshes[0].ranks
    memory = "memory does not bind"
    if problem.memory_bytes is not None:
        memory = f"{format_bytes(problem.memory_bytes)} each"
    return (
        f"{counted(problem.layers, 'layer')} with {format_bytes(sum(problem.parameter_bytes))} of "
        f"parameters, {format_ns(problem.compute_ns)} to compute, on {counted(ranks, 'rank')}, "
        f"{memory}"
    )


def _cells(result: Result[fsdp.Plan, fsdp.Evaluation]) -> tuple[str, ...]:
    plan, evaluation = result.plan, result.evaluation
    assert plan is not None
    assert evaluation is not None
    return (
        str(len(plan.units)),
        str(sum(unit.keep for unit in plan.units)),
        format_ns(evaluation.iteration_ns),
        format_ns(evaluation.exposed_ns),
        format_bytes(evaluation.peak_bytes),
    )


FAMILY = Family(
    methods=_METHODS,
    solve=fsdp.solve,
    columns=("method", "units", "kept", "iteration", "exposed comm.", "peak memory"),
    cells=_cells,
    requested=_requested,
    asks="what FSDP should wrap, prefetch and keep",
    example="planner compare request.json, where request.json has problem fsdp; of a profile and a "
    "cluster: planner plan PROFILE --cluster FILE --mode fsdp",
)
"""What is compared, and how it is shown."""
