"""``planner compare`` for the problem overlap: compiled graphs."""

from planner import overlap
from planner.cli.family import ComparedProblem, Family
from planner.jsonio import overlap as overlap_json
from planner.results import Result
from planner.solving.methods import concrete
from planner.units import counted, format_bytes, format_ns

__all__ = ["FAMILY"]


def _requested(request: overlap_json.OverlapRequest) -> ComparedProblem:
    problem = request.to_problem()
    limit = problem.memory_limit_bytes
    methods = concrete(overlap.METHODS)
    if not overlap.small(problem):
        methods.remove("exact")
    about = (
        f"request: {counted(len(problem.nodes), 'node')}, "
        f"{format_ns(problem.computation_ns)} of computation, "
        f"{counted(len(problem.collectives), 'collective')} on "
        f"{counted(len(problem.channels), 'channel')}, memory "
        f"{'without limit' if limit is None else format_bytes(limit)}"
    )
    return ComparedProblem(
        problem, lambda result: overlap_json.answer(problem, result), (about,), methods=methods
    )


def _cells(result: Result[overlap.Plan, overlap.Evaluation]) -> tuple[str, ...]:
    cost = result.evaluation
    assert cost is not None
    return (
        format_ns(cost.makespan_ns),
        format_ns(cost.exposed_ns),
        str(len(cost.transfers)),
        format_bytes(cost.peak_bytes),
    )


FAMILY = Family(
    concrete(overlap.METHODS),
    overlap.solve,
    columns=("method", "time", "not hidden", "transfers", "memory"),
    cells=_cells,
    requested=_requested,
    asks="in which order a compiled graph issues its nodes",
    example="planner compare data/overlap/two-layers.json",
)
