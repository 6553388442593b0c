"""The autograd graph: what was computed from what, and in which order."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from torch import Tensor
from torch.autograd.graph import Node

from planner.layers import chain_blocks

__all__ = ["blocks_of_spans", "nodes_behind", "order_number"]


def order_number(node: Node) -> int:
    """Return the number autograd gave to `node`; it grows in the order of computation."""
    return int(node._sequence_nr())


def nodes_behind(tensors: Iterable[Tensor]) -> list[Node]:
    """Return what computed `tensors`, in the order of computation.

    The nodes that accumulate gradients into parameters compute nothing and are left out.
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
    """Return the blocks of consecutive stretches of a computation.

    Parameters
    ----------
    nodes : sequence of Node
        The computation, from `nodes_behind`.
    spans : sequence of (int, int)
        Order numbers [first, end) of each stretch, increasing. What lies between two stretches
        (a sum, a concatenation) belongs to none of them.

    Returns
    -------
    list of int
        Block of each stretch, non-decreasing from 0. It changes where the computation is a
        single chain at some point between the end of a stretch and the start of the next; a
        stretch without nodes has its place between the nodes around it.
    """
    position = {node: index for index, node in enumerate(nodes)}
    edges = [
        # A view that is read after its base was changed gets its node after its reader's.
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
        # The last node of the previous stretch, the first one of this stretch or behind it.
        inside = 0 <= before < len(nodes) and start < len(nodes)
        if blocks and (not inside or node_blocks[before] != node_blocks[start]):
            block += 1
        blocks.append(block)
        before = bisect_left(numbers, end) - 1
    return blocks
