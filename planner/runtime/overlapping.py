"""Has compiled graphs issue their nodes in the order of a plan of `planner.overlap`.

Problem. A graph of torch.compile lists its collectives where the model called them. A plan names
another order, and collectives that are one transfer.

Method. The graph is told by the names of its nodes. Merged collectives become one coalesced
collective of torch; each of its results is waited for as before.

Guarantee. The graph computes what it did: an order that breaks one of its dependences (of values,
of writes, of random numbers) is refused, and so is a graph with collectives that no plan is of.

Complexity. O(nodes + edges).

Source. Own; the passes are those of torch._inductor, which calls them with each graph.
"""

from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from planner.errors import InvalidInputError, InvalidPlanError
from planner.jsonio.overlap import OverlapAnswer, plan_of
from planner.jsonio.service import decode_answer
from planner.overlap import Plan, Problem
from planner.profiling.compiled.dependences import dependences, operations
from planner.profiling.fx import collective_name
from planner.runtime.compiled.reordering import impose
from planner.validation import shown

__all__ = ["impose_plan", "overlap_pass"]

_COALESCED = {
    "all_gather_into_tensor": "all_gather_into_tensor_coalesced",
    "reduce_scatter_tensor": "reduce_scatter_tensor_coalesced",
    "all_reduce": "all_reduce_coalesced",
}
"""The collective of several tensors, by that of one. What follows the tensor is the same."""


def overlap_pass(*answers: bytes | str) -> Callable[[Graph], None]:
    """Return a pass that has graphs keep to plans, for a compiler's hook.

    Parameters
    ----------
    *answers : bytes or str
        Answers to requests that ``planner import fx`` made, one for each graph with collectives.

    Returns
    -------
    callable
        Takes a graph and changes it; graphs without collectives that no plan is of stay.

    Raises
    ------
    InvalidInputError
        If one is no plan of a compiled graph.

    Examples
    --------
    Inductor calls it with each graph, the forward and the backward one::

        torch._inductor.config.post_grad_custom_post_pass = overlap_pass(forward, backward)
    """
    plans = []
    for number, data in enumerate(answers):
        answer, _ = decode_answer(data)
        if not isinstance(answer, OverlapAnswer):
            raise InvalidInputError(f"answers[{number}]", "expected a plan of a compiled graph")
        plans.append(plan_of(answer))
    names = [{node.name for node in problem.nodes} for problem, _ in plans]

    def keep_to_plans(graph: Graph) -> None:
        mine = {node.name for node in operations(graph)}
        for known, (problem, plan) in zip(names, plans, strict=True):
            if known == mine:
                impose_plan(graph, problem, plan)
                return
        if any(collective_name(node) for node in operations(graph)):
            raise InvalidPlanError("nodes", _difference(mine, names))

    return keep_to_plans


def _difference(mine: set[str], names: Sequence[set[str]]) -> str:
    """Say how a graph differs from that of the plan most like it."""
    known = max(names, key=lambda known: len(known & mine), default=set())
    other = min(mine ^ known)
    where = "is not in any plan" if other in mine else "of the plan is not in it"
    return f"a graph with collectives, but no plan is of it: {shown(other)} {where}"


def impose_plan(graph: Graph, problem: Problem, plan: Plan) -> None:
    """Have a graph keep to a plan.

    Parameters
    ----------
    graph : torch.fx.Graph
        The graph; it is changed.
    problem : Problem
        What was planned: its nodes have the names of the graph's.
    plan : Plan
        The plan.

    Raises
    ------
    InvalidPlanError
        If the plan breaks a dependence of the graph.
    """
    node_of = {node.name: node for node in operations(graph)}
    order = [node_of[problem.nodes[number].name] for number in plan.order]
    needed, issued = dependences(graph, ordered=False), set[Node]()
    for place, node in enumerate(order):
        for before in needed[node]:
            if before not in issued:
                raise InvalidPlanError(
                    f"order[{place}]",
                    f"{shown(node.name)} comes before {shown(before.name)}, which it depends on in "
                    "the compiled graph",
                )
        issued.add(node)
    impose(graph, order)
    for group in plan.merged:
        starts = [node_of[problem.nodes[problem.collectives[m].start].name] for m in group]
        _merge(graph, sorted(starts, key=order.index))
    graph.lint()


def _merge(graph: Graph, starts: Sequence[Node]) -> None:
    """Make one coalesced collective of several, where the last one is issued."""
    name = _COALESCED[collective_name(starts[0])]
    target: Any = getattr(torch.ops._c10d_functional, name).default
    last = starts[-1]
    with graph.inserting_after(last):
        together = graph.call_function(
            target, ([start.args[0] for start in starts], *last.args[1:]), dict(last.kwargs)
        )
    together.meta["val"] = [start.meta.get("val") for start in starts]
    for number, start in reversed(list(enumerate(starts))):
        with graph.inserting_after(together):
            part = graph.call_function(getitem, (together, number))
        part.meta.update(start.meta)
        start.replace_all_uses_with(part)
        graph.erase_node(start)
