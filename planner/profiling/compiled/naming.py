"""What plans call the graphs of a compiled model, and their operations."""

from collections.abc import Iterable

from torch.fx import GraphModule, Node

__all__ = ["GraphNumbers", "breaks", "op_name"]


class GraphNumbers:
    """Numbers graphs in the order in which they are first seen.

    A graph that is compiled again, for other shapes or without a backward pass, keeps its number:
    it is known by its parameters, or by its code if it has none.
    """

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def number(self, module: GraphModule, parameters: Iterable[str]) -> int:
        """Return the number of a graph as Dynamo captured it."""
        key = tuple(parameters) or module.code
        return self._numbers.setdefault(key, len(self._numbers))


def op_name(graph: int, node: Node, phase: str) -> str:
    """Return the name of an operation, which no layer's has."""
    return f"graph{graph}:{node.name}/{phase}"


def breaks() -> tuple[str, ...]:
    """Return why Dynamo has cut what it compiled in this process into several graphs."""
    from torch._dynamo.utils import counters

    return tuple(str(reason).strip().split("\n")[0] for reason in counters["graph_break"])
