"""Impose a plan of `overlap` on the compiled graph it was made of, as in a pass of Inductor.

Method: Nodes are put into the planned order. Adjacent starts of collectives to merge are replaced
by torch's coalesced collective, and each wait takes its part of the result.
Guarantee: The graph computes the same results. Orders that violate a dependence, and plans of other
graphs, are refused. Collectives may change their order; all ranks must do so alike.
Complexity: O(nodes + edges).
Source: own; the coalesced collectives are torch's (`_c10d_functional`).
"""

from collections.abc import Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from planner.families import overlap
from planner.jsonio import decode_answer
from planner.jsonio.overlap import OverlapAnswer, problem_of
from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.validation import shown
from planner.profiling.fx import dependences, operations

Typed = tuple[overlap.Problem, overlap.Plan]


def impose_overlap(graph: Graph, plan: bytes | Typed) -> None:
    """Put a graph into the planned order, with the planned collectives merged.

    The graph has to be the one the plan was made of (`planner.profiling.fx.fx_document`), and is
    changed in place; call ``recompile`` of its module afterwards. The plan is an answer of
    ``planner solve`` as JSON text, or a problem with its plan. Every rank has to use the same plan:
    ranks that start collectives in different orders deadlock.

    Raises an `InvalidInputError` if the plan is not of this graph, or its order violates a
    dependence.
    """
    problem, solution = _typed(plan)
    overlap.check(problem, solution)
    names = [node.name for node in problem.nodes]
    node_of = {node.name: node for node in operations(graph)}
    (output,) = graph.find_nodes(op="output")
    for node in _in_order(graph, [names[number] for number in solution.order]):
        output.prepend(node)
    for members in solution.merged:
        chosen = [problem.collectives[member] for member in members]
        _merge(graph, [node_of[names[collective.start]] for collective in chosen])
    graph.lint()


def _in_order(graph: Graph, names: Sequence[str]) -> list[Node]:
    """Return the nodes of a graph in a planned order; raise `InvalidPlanError` if it is invalid."""
    needed = dependences(graph)
    node_of = {node.name: node for node in needed}
    unknown = sorted(node_of.keys() ^ set(names), key=node_of.__contains__)
    if unknown:
        which = "plan" if unknown[0] in node_of else "graph"
        raise InvalidPlanError("nodes", f"the {which} has no {shown(unknown[0])}: plan this graph")
    order: dict[Node, None] = {}
    for place, name in enumerate(names):
        node = node_of[name]
        for before in needed[node]:
            if before not in order:
                raise InvalidPlanError(
                    f"order[{place}]",
                    f"{shown(name)} comes before {shown(before.name)}, which it depends on in the "
                    "graph",
                )
        order[node] = None
    return list(order)


def _typed(plan: bytes | Typed) -> tuple[overlap.Problem, overlap.Plan]:
    if isinstance(plan, bytes):
        answer, _ = decode_answer(plan)
        if not isinstance(answer, OverlapAnswer):
            raise InvalidInputError("problem", f"expected a plan of overlap, got {answer.problem}")
        if not isinstance(answer.order, tuple) or not isinstance(answer.merged, tuple):
            raise InvalidInputError("plan", "there is none in this answer")
        return problem_of(answer), overlap.Plan(answer.order, answer.merged)
    return plan


def _merge(graph: Graph, starts: Sequence[Node]) -> None:
    """Replace several adjacent collectives by one coalesced collective."""
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
