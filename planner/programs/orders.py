"""In which order a plan has gradients completed, for what can be told one.

Executors that follow autograd cannot; a compiled graph can. As elsewhere here, a plan comes typed,
with its problem, or as an answer, and what it says is copied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from planner import caramel, iteration
from planner.graphs import Graph
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.programs.answers import Answer, read_plan
from planner.programs.typed import TypedPlan, is_typed
from planner.results import Result

__all__ = ["PlannedOrder", "order_of"]


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """An order that all ranks keep to.

    Attributes
    ----------
    ops : tuple of str
        Names of the ops of both passes, in the order in which they run.
    parameters : tuple of str
        In the order in which their gradients are complete.
    """

    ops: tuple[str, ...]
    parameters: tuple[str, ...]


def order_of(plan: bytes | Mapping[str, Any] | Answer | TypedPlan) -> PlannedOrder | None:
    """Return the order a plan enforces; None if each rank may have its own.

    Parameters
    ----------
    plan : bytes, mapping, answer or tuple
        A plan as `planner.programs.program_of` takes it.
    """
    if not is_typed(plan):
        return _answered(read_plan(plan))  # type: ignore[arg-type]
    problem, solved = plan[:2]
    solution: object = solved.plan if isinstance(solved, Result) else solved
    if not isinstance(solution, caramel.Plan | iteration.Plan) or len(solution.backward_orders) > 1:
        return None
    assert isinstance(problem, caramel.Problem | iteration.Problem)
    return _typed(problem.graph, solution.backward_orders[0], solution.forward_order)


def _answered(answer: Answer) -> PlannedOrder | None:
    if isinstance(answer, CaramelAnswer):
        return PlannedOrder(answer.op_order, answer.order) if answer.workers is UNSET else None
    if not isinstance(answer, IterationAnswer) or UNSET in (answer.op_order, answer.transfers):
        return None
    assert answer.transfers is not UNSET
    assert answer.op_order is not UNSET
    # It does not say of each gradient when it is complete, but of each transfer.
    pushes = [transfer for transfer in answer.transfers if transfer.kind != "pull"]
    pushes.sort(key=lambda transfer: transfer.ready_ns)
    names = dict.fromkeys(name for transfer in pushes for name in transfer.parameters)
    return PlannedOrder(answer.op_order, tuple(names))


def _typed(graph: Graph, backward: Sequence[int], forward: Sequence[int]) -> PlannedOrder:
    place = {op: number for number, op in enumerate(backward)}
    last = [max(map(place.__getitem__, updaters)) for updaters in graph.updaters]
    complete = sorted(range(len(last)), key=last.__getitem__)
    return PlannedOrder(
        tuple(graph.ops[op].name for op in (*backward, *forward)),
        tuple(graph.parameters[number].name for number in complete),
    )
