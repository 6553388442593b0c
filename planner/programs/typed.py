"""Typed plans as programs: a problem with its plan or its result."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from planner.families import bigdl, caramel, fsdp, ibatch, iteration
from planner.families.iteration.synchronisation import recipe_on
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph
from planner.model.validation import shown
from planner.programs.building import Layers, gradients, through_a_driver, transfers
from planner.programs.forms import Batch, Piece, Program, SliceProgram, piece_of
from planner.programs.units import units_of
from planner.solving.result import Result
from planner.solving.transfers import Part

TypedPlan = (
    tuple[caramel.Problem, caramel.Plan | Result[caramel.Plan, Any]]
    | tuple[iteration.Problem, iteration.Plan | Result[iteration.Plan, Any]]
    | tuple[bigdl.Problem, bigdl.Plan | Result[bigdl.Plan, Any]]
    | tuple[fsdp.Problem, fsdp.Plan | Result[fsdp.Plan, Any]]
    | tuple[ibatch.Problem, ibatch.Plan | Result[ibatch.Plan, Any], Sequence[Sequence[str]]]
    | tuple[caramel.Problem | iteration.Problem, caramel.Plan | iteration.Plan]
)
"""Problems of `ibatch` have layers but no parameters: the names of each layer's come third."""

_FAMILIES = {
    bigdl.Problem: "bigdl",
    caramel.Problem: "caramel",
    fsdp.Problem: "fsdp",
    ibatch.Problem: "ibatch",
    iteration.Problem: "iteration",
}


def is_typed(plan: object) -> TypeGuard[TypedPlan]:
    """Return whether a value is a problem with its plan, and not a sequence of plans."""
    return isinstance(plan, tuple) and bool(plan) and type(plan[0]) in _FAMILIES


def family_of(plan: TypedPlan) -> str:
    """Return the family of a plan."""
    return _FAMILIES[type(plan[0])]


def read_typed(plan: TypedPlan) -> Program | Layers:
    """Return the program of a typed plan, after its family's checker has passed it."""
    problem: object
    solved: object
    problem, solved, *names = plan if len(plan) > 1 else (*plan, None)
    solution: object
    method, solution = f"this plan of {family_of(plan)}", solved
    if isinstance(solved, Result):
        if solved.infeasibility is not None:
            raise InvalidInputError("plan", f"there is none: {solved.infeasibility.reason}")
        method, solution = solved.method, solved.plan
    match problem, solution:
        case caramel.Problem(), caramel.Plan():
            caramel.check(problem, solution)
            sizes = tuple(parameter.size_bytes for parameter in problem.graph.parameters)
            batches = (
                Batch(_pieces(problem.graph, group.parts, sizes), group.size_bytes, group.depth)
                for group in solution.groups
            )
            traffic, times = float(solution.traffic), caramel.evaluate(problem, solution).times
            return gradients(batches, times, method, barrier=solution.barrier, traffic=traffic)
        case iteration.Problem(), iteration.Plan():
            iteration.check(problem, solution)
            rows = []
            for transfer in solution.transfers:
                sizes = problem.pulled if transfer.kind == "pull" else problem.pushed
                pieces = _pieces(problem.graph, transfer.parts, sizes)
                name = transfer.algorithm or solution.algorithm
                recipe = recipe_on(problem.cluster, name)
                batch = Batch(pieces, transfer.size_bytes, transfer.depth, recipe)
                rows.append((transfer.kind, batch))
            times = iteration.evaluate(problem, solution).times
            return transfers(rows, times, barrier=solution.barrier)
        case ibatch.Problem(), ibatch.Plan():
            ibatch.check(problem, solution)
            table = _table(problem, names)
            return Layers(problem.direction, solution.batches, table, problem.layer_bytes)
        case bigdl.Problem(), bigdl.Exchange():
            bigdl.check(problem, solution)
            nodes = range(solution.nodes)
            return SliceProgram(
                tuple(map(solution.slice, nodes)), tuple(map(solution.pull_order, nodes))
            )
        case fsdp.Problem(), fsdp.Plan():
            fsdp.check(problem, solution)
            chosen = problem.meshes[solution.mesh]
            mesh = chosen.replicas, chosen.shards
            loads = fsdp.evaluate(problem, solution).loads
            return units_of(problem.names, solution, loads, mesh, problem.channels)
        case bigdl.Problem(), bigdl.Driver():
            raise through_a_driver(method)
    raise InvalidInputError(
        "plan",
        f"expected a plan or result of a problem of {family_of(plan)}, got {shown(solution)}",
    )


def _pieces(graph: Graph, parts: Iterable[Part], sizes: Sequence[int]) -> tuple[Piece, ...]:
    """Return the pieces of a transfer, parameter by parameter, as answers list them."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for index, start, stop in parts:
        spans.setdefault(index, []).append((start, stop))
    return tuple(
        piece_of(graph.parameters[index].name, start, stop, sizes[index])
        for index, several in spans.items()
        for start, stop in _joined(several)
    )


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans sorted, with touching ones merged."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        touches = joined and joined[-1][1] == start
        joined.append((joined.pop()[0] if touches else start, stop))
    return joined


def _table(problem: ibatch.Problem, names: Sequence[Any]) -> tuple[tuple[str, ...], ...] | None:
    """Return the parameters of each layer, or None if they were not given."""
    if not names or names[0] is None:
        return None
    table = tuple(map(tuple, names[0]))
    if len(table) != problem.layers:
        raise InvalidInputError(
            "layer_parameters", f"expected those of {problem.layers} layers, got {len(table)}"
        )
    return table
