"""Imposes a plan of `overlap` on the compiled graph it was made of.

Problem. A plan says in which order a rank issues the nodes of a graph with collectives, and which
collectives are one transfer; the graph has to become one that does.

Method. Nodes are put into the planned order. Starts of collectives that are merged stand together
there: torch's coalesced form of the collective takes their place, and each wait takes its part.

Guarantee. The graph computes what it did. An order that breaks a dependence of the graph, and a
plan of another graph, are refused; collectives may change places with each other, which all ranks
have to do alike.

Complexity. O(nodes + edges).

Source. Own; the coalesced collectives are torch's (`_c10d_functional`).
"""

from collections.abc import Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from planner import overlap
from planner.errors import InvalidInputError, InvalidPlanError
from planner.jsonio import decode_answer
from planner.jsonio.overlap import OverlapAnswer, problem_of
from planner.profiling.compiled.dependences import operations
from planner.results import Result
from planner.runtime.compiled.reordering import by_operations, impose
from planner.validation import shown

__all__ = ["impose_overlap"]

Typed = tuple[overlap.Problem, overlap.Plan | Result[overlap.Plan, overlap.Evaluation]]


def impose_overlap(graph: Graph, plan: bytes | Typed) -> None:
    """Let a graph run in the planned order, with the planned collectives merged.

    Every rank has to do it with the same plan, as ranks that start collectives in different orders
    wait for each other for ever.

    Parameters
    ----------
    graph : torch.fx.Graph
        The graph the plan was made of (`planner.profiling.fx.fx_document`), changed in place; call
        ``recompile`` of its module then.
    plan : bytes or tuple
        An answer of ``planner solve`` as JSON text, or a problem with its plan or result.

    Raises
    ------
    InvalidInputError
        If the plan is not of this graph, or its order breaks a dependence.
    """
    problem, solution = _typed(plan)
    overlap.check(problem, solution)
    names = [node.name for node in problem.nodes]
    called = {node: node.name for node in operations(graph)}
    known = set(called.values())
    strange = next((name for name in names if name not in known), None)
    if strange is not None:
        raise InvalidPlanError("nodes", f"the graph has no {shown(strange)}: plan this graph")
    order = [names[node] for node in solution.order]
    impose(graph, by_operations(graph, order, called, keep_collectives=False))
    node_of = {name: node for node, name in called.items()}
    for members in solution.merged:
        chosen = [problem.collectives[member] for member in members]
        _merge(graph, [node_of[names[collective.start]] for collective in chosen])
    graph.lint()


def _typed(plan: bytes | Typed) -> tuple[overlap.Problem, overlap.Plan]:
    if isinstance(plan, bytes):
        answer, _ = decode_answer(plan)
        if not isinstance(answer, OverlapAnswer):
            raise InvalidInputError("problem", f"expected a plan of overlap, got {answer.problem}")
        if not isinstance(answer.order, tuple) or not isinstance(answer.merged, tuple):
            raise InvalidInputError("plan", "there is none in this answer")
        return problem_of(answer), overlap.Plan(answer.order, answer.merged)
    problem, solved = plan
    solution = solved.plan if isinstance(solved, Result) else solved
    if solution is None:
        raise InvalidInputError("plan", "there is none in this result")
    return problem, solution


def _merge(graph: Graph, starts: Sequence[Node]) -> None:
    """Put one coalesced collective in the place of several, which stand together."""
    target: Any = starts[0].target
    name = target.name().partition("::")[2].partition(".")[0]
    coalesced: Any = getattr(torch.ops._c10d_functional, f"{name}_coalesced", None)
    if coalesced is None:
        raise InvalidPlanError("merged", f"torch has no form of {name} for several tensors")
    rest = starts[0].args[1:]
    if any(start.args[1:] != rest or start.kwargs for start in starts):
        raise InvalidPlanError("merged", f"{starts[0].name} and others differ in their arguments")
    place: Mapping[Node, int] = {node: number for number, node in enumerate(graph.nodes)}
    last = max(starts, key=place.__getitem__)
    with graph.inserting_after(last):
        several = graph.call_function(
            coalesced.default, ([start.args[0] for start in starts], *rest)
        )
    several.meta["val"] = [start.meta["val"] for start in starts]
    behind = several
    for number, start in enumerate(starts):
        with graph.inserting_after(behind):
            behind = graph.call_function(getitem, (several, number))
        behind.meta["val"] = start.meta["val"]
        start.replace_all_uses_with(behind)
    for start in starts:
        graph.erase_node(start)
