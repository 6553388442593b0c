"""Parameter servers that hold whole tensors, as TensorFlow places variables.

Problem: all N servers are workers and parameter servers, but tensors are not cut. What do the
unequal loads cost? `round_robin` gives tensor i to server i mod N; `least_loaded` gives each to the
server with the fewest bytes. A server with L of S bytes receives (N-1)·L and sends S - L. As
S <= (N-1)·L_max + L_min, the most loaded server decides; pulling is the mirror image.
Guarantee: exact: volume 2(N-1)·L_max/S, additions (N-1)·L_max/S, 2 steps. `least_loaded` is list
scheduling: L_max <= S/N + (1 - 1/N)·(largest tensor), below twice the optimum. O(T·log N).
Source: TensorFlow's ``replica_device_setter`` (round robin) and ``GreedyLoadBalancingStrategy`` by
bytes; Graham, "Bounds for Certain Multiprocessing Anomalies", 1966; that whole tensors unbalance
servers: Wang et al., "BML", NeurIPS 2018, section 4.3.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial
from heapq import heapreplace
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


def least_loaded(tensors: Iterable[Any], servers: int) -> tuple[int, ...]:
    """Return the bytes on each server, if each tensor goes to the least loaded one."""
    sizes = _checked(tensors)
    loads: Counter[int] = Counter()
    for size, server in zip(sizes, _balanced(sizes, servers), strict=True):
        loads[server] += size
    return tuple(loads[server] for server in range(min(servers, len(sizes))))


def _balanced(sizes: Sequence[int], servers: int) -> list[int]:
    """Return the server of each tensor, if each goes to the least loaded one."""
    # Ties go to the first server, so servers beyond the number of tensors stay empty.
    loads = [(0, server) for server in range(min(servers, len(sizes)))]
    owners = []
    for size in sizes:
        load, server = loads[0]
        heapreplace(loads, (load + size, server))
        owners.append(server)
    return owners


def tensors_program(tensors: Iterable[Any], servers: int, *, balanced: bool) -> ListedProgram:
    """Return the program of parameter servers with whole tensors; each tensor is a chunk.

    `balanced` places each tensor on the least loaded server; else round robin.
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


def tensors_on(fabric: Fabric, tensors: Iterable[Any], *, balanced: bool) -> Collective:
    """Return the cost on a Fat-Tree; `balanced` is that of `tensors_program`."""
    loads = (least_loaded if balanced else round_robin)(tensors, fabric.servers)
    busiest = (fabric.servers - 1) * Fraction(max(loads), sum(loads))
    name = "ps_tensors_greedy" if balanced else "ps_tensors"
    return placed(name, fabric, 2, 2 * busiest, busiest)


def _checked(tensors: Iterable[Any]) -> tuple[int, ...]:
    sizes = integers(tensors, "tensors")
    if not total(sum(sizes), "tensors", "the sum of the tensors' bytes"):
        raise InvalidInputError("tensors", "expected at least one byte, got 0")
    return sizes
