"""Parameter servers that hold whole tensors, as TensorFlow places variables.

Problem: all N servers are workers and parameter servers, but a tensor is not cut: it lives on one
of them. What do the unequal loads cost?

Method: two placements of the tensors in the order in which they are created. `round_robin` gives
tensor i to server i mod N; `least_loaded` gives each to the server that has the fewest bytes, the
first of several.

A server with the load L of S bytes receives (N-1)·L pushed by the others, and sends S - L. The
largest load decides: S is at most (N-1)·L_max + L_min, so nobody sends more than the most loaded
server receives. Pulling is the same the other way round.

Guarantee: exact: volume 2(N-1)·L_max/S, additions (N-1)·L_max/S, 2 steps. `least_loaded` is
list scheduling: L_max is at most S/N + (1 - 1/N)·(largest tensor), and less than twice the best
placement's. Both are the balanced `ps` exactly when all loads are equal.

Complexity: O(T·log N) for T tensors.

Source: TensorFlow's ``replica_device_setter`` (round robin, the default) and
``GreedyLoadBalancingStrategy`` with bytes as load; that whole tensors unbalance servers: Wang et
al., "BML", NeurIPS 2018, section 4.3; the guarantee: Graham, "Bounds for Certain Multiprocessing
Anomalies", 1966.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial
from heapq import heapreplace
from itertools import accumulate
from typing import Any

from planner.collectives.collective import Collective
from planner.collectives.fabric import Fabric
from planner.collectives.layout import WeightedLayout
from planner.collectives.making import on_fabric
from planner.collectives.program import ListedProgram, Message
from planner.errors import InvalidInputError
from planner.validation import integers, total

__all__ = [
    "least_loaded",
    "ps_tensors_fattree",
    "ps_tensors_greedy_fattree",
    "round_robin",
    "tensors_program",
]


def round_robin(tensors: Iterable[Any], servers: int) -> tuple[int, ...]:
    """Return the bytes on each server that has a tensor, if they are dealt out in turn.

    Parameters
    ----------
    tensors : iterable of int
        Bytes of each tensor, in order of creation.
    servers : int
        Number of servers.

    Raises
    ------
    InvalidInputError
        If a size is no integer, there are no bytes at all, or more than fit in 63 bits.
    """
    sizes = _checked(tensors)
    return tuple(sum(sizes[first::servers]) for first in range(min(servers, len(sizes))))


def least_loaded(tensors: Iterable[Any], servers: int) -> tuple[int, ...]:
    """Return the bytes on each server that may have a tensor, if each goes where the least is.

    Parameters and errors are those of `round_robin`.
    """
    sizes = _checked(tensors)
    loads: Counter[int] = Counter()
    for size, server in zip(sizes, _balanced(sizes, servers), strict=True):
        loads[server] += size
    return tuple(loads[server] for server in range(min(servers, len(sizes))))


def _balanced(sizes: Sequence[int], servers: int) -> list[int]:
    """Return the server of each tensor, if each goes where the least is."""
    # Of ties the first server is taken, so those beyond the number of tensors stay empty.
    loads = [(0, server) for server in range(min(servers, len(sizes)))]
    owners = []
    for size in sizes:
        load, server = loads[0]
        heapreplace(loads, (load + size, server))
        owners.append(server)
    return owners


def tensors_program(tensors: Iterable[Any], servers: int, *, balanced: bool) -> ListedProgram:
    """Return the program of parameter servers with whole tensors; each is a chunk.

    Parameters
    ----------
    tensors : iterable of int
        Bytes of each tensor, in order of creation.
    servers : int
        Number of servers, and workers.
    balanced : bool
        Whether a tensor goes where the fewest bytes are; else they are dealt out in turn.

    Raises
    ------
    InvalidInputError
        If a size is no integer, there are no bytes at all, or more than fit in 63 bits.
    """
    sizes = _checked(tensors)
    owners = _balanced(sizes, servers) if balanced else [*range(servers)] * len(sizes)
    messages = []
    for chunk, owner in zip(range(len(sizes)), owners, strict=False):
        for more in range(1, servers):
            worker = (owner + more) % servers
            ends = 0, chunk, chunk + 1
            messages += [
                Message(0, 0, worker, owner, *ends, adds=True),
                Message(1, 0, owner, worker, *ends, adds=False),
            ]
    edges = tuple(Fraction(end, sum(sizes)) for end in accumulate(sizes))
    return ListedProgram(
        f"tensors({servers})",
        servers,
        1,
        1,
        len(sizes),
        tuple(messages),
        owners,
        1,
        placed=partial(WeightedLayout, edges),
        exclusive=False,
    )


def ps_tensors_fattree(fabric: Fabric, tensors: Iterable[Any]) -> Collective:
    """Return the cost with tensors dealt out in turn."""
    loads = round_robin(tensors, fabric.servers)
    return _placed("ps_tensors", fabric, loads)


def ps_tensors_greedy_fattree(fabric: Fabric, tensors: Iterable[Any]) -> Collective:
    """Return the cost with each tensor where the fewest bytes are."""
    loads = least_loaded(tensors, fabric.servers)
    return _placed("ps_tensors_greedy", fabric, loads)


def _placed(algorithm: str, fabric: Fabric, loads: tuple[int, ...]) -> Collective:
    busiest = (fabric.servers - 1) * Fraction(max(loads), sum(loads))
    return on_fabric(algorithm, fabric, 2, 2 * busiest, busiest)


def _checked(tensors: Iterable[Any]) -> tuple[int, ...]:
    sizes = integers(tensors, "tensors")
    if not total(sum(sizes), "tensors", "the sum of the tensors' bytes"):
        raise InvalidInputError("tensors", "expected at least one byte, got 0")
    return sizes
