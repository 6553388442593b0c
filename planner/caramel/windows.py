"""Transfer windows: when each gradient is ready, and how much computation waits for it.

Problem: for a fixed op order, sending gradients is the one-machine problem 1 | r_j, q_j | Cmax.
Parameter j is ready at its head r_j (time 0 is the start of the backward pass); its tail q_j is the
forward computation from the op that first reads it. An iteration lasts max(backward + forward, max
over transfers of (end + tail)).
Complexity: O(ops + parameters).
Source: Caramel §3.1 (start and end boundary); Carlier, "The one-machine sequencing problem", EJOR
11 (1982), for heads and tails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from planner.graphs import Graph

__all__ = ["Windows", "ready_times", "windows"]


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of all parameters under one op order.

    Attributes
    ----------
    sizes : tuple of int
        Bytes of each parameter, in the order of `Graph.parameters`.
    heads : tuple of int
        When each gradient is ready, in ns from the start of the backward pass.
    tails : tuple of int
        Forward computation from the first op that reads each parameter to the end, in ns.
    backward_ns, forward_ns : int
        Computation of each pass.
    """

    sizes: tuple[int, ...]
    heads: tuple[int, ...]
    tails: tuple[int, ...]
    backward_ns: int
    forward_ns: int

    @property
    def compute_ns(self) -> int:
        """Computation of an iteration: its length if no transfer is waited for (ns)."""
        return self.backward_ns + self.forward_ns


def ready_times(graph: Graph, backward: Sequence[int]) -> tuple[int, ...]:
    """Return when each gradient is complete under the op order `backward` (ns)."""
    ends = accumulate(graph.ops[index].duration_ns for index in backward)
    end = dict(zip(backward, ends, strict=True))
    return tuple(max(end[index] for index in updaters) for updaters in graph.updaters)


def windows(graph: Graph, backward: Sequence[int], forward: Sequence[int]) -> Windows:
    """Return the windows of every parameter under one order of all ops."""
    left = forward_ns = sum(graph.ops[index].duration_ns for index in forward)
    tail = {}
    for index in forward:
        tail[index] = left
        left -= graph.ops[index].duration_ns
    return Windows(
        sizes=tuple(parameter.size_bytes for parameter in graph.parameters),
        heads=ready_times(graph, backward),
        tails=tuple(max(tail[index] for index in readers) for readers in graph.readers),
        backward_ns=sum(graph.ops[index].duration_ns for index in backward),
        forward_ns=forward_ns,
    )
