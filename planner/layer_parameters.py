"""Derive the parameters of each layer from the dataflow graph.

Problem: a plan lists layers, a training framework lists named parameters, and only the dataflow
graph of a profile knows both.
Method: walk the forward ops in their listed order, which in a measured graph is the order of
execution. An op called ``NAME/forward``, where NAME is the next layer, begins this layer; any other
op belongs to the layer before it, or to the first one. A parameter (and its size in a profile)
belongs to the layer in which it is first read.

Guarantee: every parameter of the graph is in exactly one layer, or the result is None.
Complexity: O(ops + layers + readers). Source: own.
"""

from collections.abc import Sequence

from planner.graphs import Graph, Parameter

__all__ = ["parameters_of_layers"]


def parameters_of_layers(
    graph: Graph, names: Sequence[str]
) -> tuple[tuple[Parameter, ...], ...] | None:
    """Return the parameters of each layer, in the order of the graph.

    `names` are distinct and in the order of forward computation. None if the graph's ops are not
    those of these layers in this order, or if the graph has one parameter for a whole layer, with
    the layer's name (`planner.layers.graph_of_layers`).
    """
    begins = [f"{name}/forward" for name in names]
    layer_of: dict[str, int] = {}
    begun = 0
    for op in graph.ops:
        if op.phase == "forward":
            if begun < len(begins) and op.name == begins[begun]:
                begun += 1
            layer_of[op.name] = max(begun - 1, 0)
    known = set(names)
    if begun < len(begins) or any(parameter.name in known for parameter in graph.parameters):
        return None
    owned: list[list[Parameter]] = [[] for _ in names]
    for parameter in graph.parameters:
        owned[min(layer_of[name] for name in parameter.read_by)].append(parameter)
    return tuple(map(tuple, owned))
