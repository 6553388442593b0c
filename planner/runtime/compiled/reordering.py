"""Runs the operations of a compiled graph in the order that a plan has.

Problem. Autograd's order completes gradients late that a plan wants early. A graph may be told
another order, as far as its operations do not depend on each other.

Method. If a plan names the graph's operations (its profile is of the compiled model), they run in
just that order. Otherwise the plan's order of gradients is imposed: what the first gradient needs
runs first, then what the second one needs beside, and so on, else in the order that was there.

Guarantee. The result computes what the graph did, with the same random numbers: every dependence
of `planner.profiling.compiled.dependences` is kept, and an order that breaks one is refused.

Complexity. O(nodes log nodes + edges).

Source. Hashemi et al., *Caramel* §4.1, stage 2, which adds control edges; here the order itself is
rewritten.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from torch.fx import Graph, Node

from planner.caramel.activation import backward_order
from planner.errors import InvalidPlanError
from planner.graphs import Graph as Dataflow
from planner.graphs import Op, Parameter
from planner.profiling.compiled.dependences import dependences, operations
from planner.validation import shown

__all__ = ["by_gradients", "by_operations", "impose"]


def by_operations(
    graph: Graph,
    names: Sequence[str],
    called: Mapping[Node, str],
    *,
    keep_collectives: bool = True,
) -> list[Node]:
    """Return a graph's operations in the order in which a plan names them.

    Parameters
    ----------
    graph : Graph
        The graph.
    names : sequence of str
        The plan's operations of both passes, and of other graphs.
    called : mapping of Node to str
        What the plan calls each operation of this graph.
    keep_collectives : bool
        Whether collectives that the graph has keep their order.

    Raises
    ------
    InvalidPlanError
        If one is missing, or comes before another one that it depends on.
    """
    needed = dependences(graph, keep_collectives=keep_collectives)
    node_of = {called[node]: node for node in needed}
    order: dict[Node, None] = {}
    for place, name in enumerate(names):
        if name not in node_of:
            continue  # of the other pass, or of another graph
        node = node_of[name]
        for before in needed[node]:
            if before not in order:
                raise InvalidPlanError(
                    f"op_order[{place}]",
                    f"{shown(name)} comes before {shown(called[before])}, which it depends on in "
                    "the compiled graph",
                )
        order[node] = None
    for node in needed:
        if node not in order:
            raise InvalidPlanError(
                "op_order",
                f"{shown(called[node])} of the compiled graph is missing: profile the model as it "
                "is compiled (planner profile --compiled)",
            )
    return list(order)


def by_gradients(graph: Graph, gradients: Mapping[str, Node], names: Sequence[str]) -> list[Node]:
    """Return a graph's operations so that gradients are complete in an order, as far as may be.

    Parameters
    ----------
    graph : Graph
        The graph.
    gradients : mapping of str to Node
        The node that is each parameter's gradient.
    names : sequence of str
        Parameters in the order of their gradients; those of other graphs do not matter.
    """
    needed = dependences(graph)
    made = [name for name in names if isinstance(gradients.get(name), Node)]
    made = [name for name in made if gradients[name] in needed]
    if not made:
        return list(needed)
    start = Op("", 0, "forward")  # what a backward pass begins with
    op = partial(Op, duration_ns=0, phase="backward")
    flow = Dataflow(
        (start, *(op(node.name, after=("", *(n.name for n in needed[node]))) for node in needed)),
        tuple(Parameter(name, 1, (gradients[name].name,), ("",)) for name in made),
    )
    nodes = list(needed)
    return [nodes[index - 1] for index in backward_order(flow, range(len(made)))]


def impose(graph: Graph, order: Sequence[Node]) -> None:
    """Let a graph's operations run in an order, which has all of them."""
    assert set(order) == set(operations(graph))
    (output,) = graph.find_nodes(op="output")
    for node in order:
        output.prepend(node)
    graph.lint()
