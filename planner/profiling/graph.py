"""The autograd graph: its nodes in the order of computation, and its blocks."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from torch import Tensor
from torch.autograd.graph import Node

from planner.model.layers import chain_blocks


def order_number(node: Node) -> int:
    """Return autograd's sequence number of a node; it grows in the order of computation."""
    return int(node._sequence_nr())


def nodes_behind(tensors: Iterable[Tensor]) -> list[Node]:
    """Return the nodes that computed `tensors`, in the order of computation.

    Nodes that accumulate gradients into parameters compute nothing and are left out.
    """
    nodes: dict[Node, None] = {}
    waiting = [tensor.grad_fn for tensor in tensors]
    while waiting:
        node = waiting.pop()
        if node is None or node in nodes or type(node).__name__ == "AccumulateGrad":
            continue
        nodes[node] = None
        waiting.extend(producer for producer, _ in node.next_functions)
    return sorted(nodes, key=order_number)


def blocks_of_spans(nodes: Sequence[Node], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the block of each span of order numbers [first, end), non-decreasing from 0.

    `nodes` come from `nodes_behind`; the spans increase. A new block begins where the computation
    is a single chain at some point between two spans. A span without nodes is placed between its
    neighbours.
    """
    position = {node: index for index, node in enumerate(nodes)}
    edges = [
        # Autograd numbers a view after its reader if the view's base has changed in between.
        (min(position[producer], index), max(position[producer], index))
        for node, index in position.items()
        for producer, _ in node.next_functions
        if producer in position
    ]
    node_blocks = chain_blocks(len(nodes), edges)
    numbers = [order_number(node) for node in nodes]
    blocks: list[int] = []
    block, before = 0, -1
    for first, end in spans:
        start = bisect_left(numbers, first)
        # Compare the last node of the previous span with the first node at or after this one.
        inside = 0 <= before < len(nodes) and start < len(nodes)
        if blocks and (not inside or node_blocks[before] != node_blocks[start]):
            block += 1
        blocks.append(block)
        before = bisect_left(numbers, end) - 1
    return blocks
