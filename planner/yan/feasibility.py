"""Whether a job fits on the machines at all, and if not, what binds.

Problem: servers need less memory the more there are, workers the more there are of them, in whose
partitions the layers can be cut; is there a number of servers with which both fit?

Guarantee: infeasible exactly when no configuration passes the checker; the memory named is the
least with which one does.

Complexity: O(log N) numbers of servers, each O(L·P) layers and partitions of bytes. Source: own.
"""

from functools import cache

from planner.results import Infeasibility
from planner.yan.checker import server_bytes, worker_bytes
from planner.yan.problem import Problem
from planner.yan.search import Space
from planner.yan.tables import choices

__all__ = ["fewest_servers", "infeasibility", "space_of"]


def fewest_servers(problem: Problem) -> int:
    """Return how many servers the weights need."""
    if problem.memory_bytes is None:
        return 1
    one = server_bytes(problem, 1)
    servers = max(1, -(-one // problem.memory_bytes))
    while server_bytes(problem, servers) > problem.memory_bytes:
        servers += 1
    return servers


def space_of(problem: Problem) -> Space:
    """Return all triples of a problem."""
    return Space(problem.machines, fewest_servers(problem), problem.machines, problem.machines)


def infeasibility(problem: Problem) -> Infeasibility | None:
    """Return why there is no configuration at all, and the smallest relaxation; None if there is.

    A layer needs least with one thread; mostly, but not always, in as many partitions as there can
    be: an inner band of a convolution reads more rows than one at the edge, which has padding.
    """
    if problem.machines < 2:
        return Infeasibility(
            "a job needs a parameter server and a worker: machines must be at least 2",
            ("machines",),
        )
    if problem.memory_bytes is None:
        return None

    @cache
    def least(place: int, workers: int) -> tuple[int, int]:
        """Return the least bytes of a layer, and in how many partitions."""
        layer = problem.layers[place]
        partitions = {p for p, _ in choices(problem, layer, workers)}
        return min((worker_bytes(problem, place, p, 1), p) for p in partitions)

    def needed(workers: int) -> list[int]:
        return [least(place, workers)[0] for place in range(len(problem.layers))]

    def both(servers: int) -> int:
        return max(server_bytes(problem, servers), sum(needed(problem.machines - servers)))

    low, high = 1, problem.machines - 1  # servers need less the more there are, workers more
    while low < high:
        middle = (low + high) // 2
        if server_bytes(problem, middle) <= sum(needed(problem.machines - middle)):
            high = middle
        else:
            low = middle + 1
    servers = min(range(max(1, low - 1), low + 1), key=both)
    if both(servers) <= problem.memory_bytes:
        return None
    parts = needed(problem.machines - servers)
    largest = max(range(len(parts)), key=parts.__getitem__)
    layer, best = problem.layers[largest], least(largest, problem.machines - servers)[1]
    return Infeasibility(
        f"memory: at least {both(servers)} bytes a machine are needed, memory_bytes is "
        f"{problem.memory_bytes}; with {servers} of {problem.machines} machines as servers each "
        f"holds {server_bytes(problem, servers)} bytes and each worker up to {sum(parts)}, most of "
        f"it ({parts[largest]}) for layer {layer.name!r} in {best} partitions",
        ("memory_bytes",),
        (largest,),
    )
