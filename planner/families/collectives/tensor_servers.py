"""Parameter servers that hold whole tensors, as TensorFlow places variables.

Problem: all N servers are workers and parameter servers, but tensors are not cut. What do the
unequal loads cost? Tensor i goes to server i mod N. A server with L of S bytes receives (N-1)·L and
sends S - L. As S <= (N-1)·L_max + L_min, the most loaded server decides; pulling mirrors that.
Guarantee: exact: volume 2(N-1)·L_max/S, additions (N-1)·L_max/S, 2 steps. Complexity: O(T).
Source: TensorFlow's ``replica_device_setter`` (round robin); that whole tensors unbalance servers:
Wang et al., "BML", NeurIPS 2018, section 4.3.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import partial
from typing import Any

from planner.families.collectives.cost import Collective, Fabric, placed
from planner.families.collectives.layout import by_shares
from planner.families.collectives.program import ListedProgram, Message
from planner.model.errors import InvalidInputError
from planner.model.validation import integers, total


def round_robin(tensors: Iterable[Any], servers: int) -> tuple[int, ...]:
    """Return the bytes on each server that gets a tensor, if tensors go round robin."""
    sizes = _checked(tensors)
    return tuple(sum(sizes[first::servers]) for first in range(min(servers, len(sizes))))


def tensors_program(tensors: Iterable[Any], servers: int) -> ListedProgram:
    """Return the program of parameter servers with whole tensors; each tensor is a chunk."""
    sizes = _checked(tensors)
    owners = [chunk % servers for chunk in range(len(sizes))]
    messages = []
    for chunk, owner in enumerate(owners):
        for more in range(1, servers):
            worker = (owner + more) % servers
            ends = 0, chunk, chunk + 1
            messages += [
                Message(0, 0, worker, owner, *ends, adds=True),
                Message(1, 0, owner, worker, *ends, adds=False),
            ]
    shares = tuple(Fraction(size, sum(sizes)) for size in sizes)
    return ListedProgram(
        f"tensors({servers})",
        servers,
        1,
        1,
        len(sizes),
        tuple(messages),
        owners,
        1,
        placed=partial(by_shares, shares),
        exclusive=False,
    )


def tensors_on(fabric: Fabric, tensors: Iterable[Any]) -> Collective:
    """Return the cost on a Fat-Tree."""
    loads = round_robin(tensors, fabric.servers)
    busiest = (fabric.servers - 1) * Fraction(max(loads), sum(loads))
    return placed("ps_tensors", fabric, 2, 2 * busiest, busiest)


def _checked(tensors: Iterable[Any]) -> tuple[int, ...]:
    sizes = integers(tensors, "tensors")
    if not total(sum(sizes), "tensors", "the sum of the tensors' bytes"):
        raise InvalidInputError("tensors", "expected at least one byte, got 0")
    return sizes
